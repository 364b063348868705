"""Identity of the cluster that a log describes: the UID of the `kube-system` namespace, or `simulated/<id>`.

A log that met another cluster would record the deletion of everything, and carry out its intents there.
"""

from shared.errors import KoordError
from shared.events.cluster import ClusterIdentified

SIMULATED = "simulated/"


class WrongCluster(KoordError):
    """The log describes another cluster."""

    def __init__(self, recorded: str, found: str, where: str) -> None:
        super().__init__(
            f"this log describes {describe_cluster(recorded)}, but {where} is {describe_cluster(found)}: nothing was recorded or written. "
            "Connect to the cluster of the log (KOORD_GATEWAY_KUBECONFIG, or the pod's service account), or give this "
            "one a log of its own: another database in KOORD_POSTGRES, or another folder in `koord up --dir`"
        )


class ClusterTaken(KoordError):
    """Another live system writes to the cluster."""

    def __init__(self, server: str, log: str, replica: str, lasts_s: float) -> None:
        super().__init__(
            f"the cluster at {server} is managed by another live system: log {log}, {replica}. Two systems would undo "
            f"each other's work, so this one writes nothing. End the other one first (if it was killed, {lasts_s:g} s "
            "are enough), work with its log (`--dir`, KOORD_POSTGRES), or run this one beside it: `koord up --shadow --kubeconfig FILE`, "
            "KOORD_GATEWAY_SHADOW=true"
        )


def first_fact(recorded: str, found: str, where: str) -> ClusterIdentified | None:
    """Returns the event that records the cluster; None if the log has it.

    Args:
        recorded: the cluster of the log; empty if it was never recorded.
        found: the cluster that was reached.
        where: the place at which it was reached, for the error.

    Raises:
        WrongCluster: the two differ.
    """
    if not recorded:
        return ClusterIdentified(cluster=found)
    if recorded != found:
        raise WrongCluster(recorded, found, where)
    return None


def describe_cluster(cluster: str) -> str:
    """Names a cluster, for people."""
    if cluster.startswith(SIMULATED):
        return f"the simulated cluster {cluster.removeprefix(SIMULATED)}"
    return f"cluster {cluster} (UID of its namespace kube-system)"
