"""The remedy for a bus that cannot be used."""

from shared.unreachable import remedy_of_hang

_SILENT = ("no response", "timeout", "timed out")


def bus_remedy(reason: str) -> str:
    """Returns what to do about a NATS that cannot be reached: one that hangs is not to be started.

    Args:
        reason: why the connection failed, in the words of the client.
    """
    is_silent = any(each in reason.lower() for each in _SILENT)
    return remedy_of_hang("KOORD_NATS") if is_silent else "start it, or correct KOORD_NATS"
