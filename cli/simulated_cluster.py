"""The kind of cluster that a log describes: the simulated one has no kubectl, so that it needs other advice."""

from shared.log.admin.newest_events import Found, writer_of
from shared.log.database import Database


def is_simulators(writer: Found | None) -> bool:
    """Returns whether the writer of `cluster` is the simulator."""
    return writer is not None and writer.actor.startswith("simulator@")


async def is_simulated(database: Database) -> bool:
    """Returns whether the log is that of a simulated cluster."""
    return is_simulators(await writer_of(database, "cluster"))


def edit_advice(kind: str, name: str, namespace: str = "", *, simulated: bool) -> str:
    """Returns the command that changes an object, as code.

    Args:
        kind: as kubectl and `koord dev patch` accept it.
        namespace: of a namespaced object; empty for another one.
    """
    within = f" -n {namespace}" if namespace else ""
    on_kubernetes = f"kubectl edit {kind} {name}{within}"
    return advice(on_kubernetes, f"koord dev patch {kind} {name} PATCH{within}", simulated=simulated)


def advice(on_kubernetes: str, on_simulator: str, *, simulated: bool) -> str:
    """Returns the command for the cluster in question, as code."""
    return f"`{on_simulator if simulated else on_kubernetes}`"
