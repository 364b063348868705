"""The remedy for a bus that cannot be used."""

_OF_A_HANG = "see that it runs: a process that hangs is to be ended, and `koord up` starts its own server again; or correct KOORD_NATS"
_SILENT = ("no response", "timeout", "timed out")


def bus_remedy(reason: str) -> str:
    """Returns what to do about a NATS that cannot be reached: one that hangs is not to be started.

    Args:
        reason: why the connection failed, in the words of the client.
    """
    return _OF_A_HANG if any(each in reason.lower() for each in _SILENT) else "start it, or correct KOORD_NATS"
