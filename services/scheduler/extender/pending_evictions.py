"""Who was asked to go for pods of others, until they are seen to have gone.

The caller reads the cluster for itself, and may see them leave before we do: it must not be told meanwhile that the pod fits nowhere, or
pods of another node would go for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.state.pod_record import PodRecord


class PendingEviction(NamedTuple):
    """A node, and who was asked to go from it."""

    node: str
    victims: tuple[str, ...]

    def is_pending(self, pods: Mapping[str, PodRecord]) -> bool:
        """Whether some of them are still there, and all of those are on their way."""
        here = [
            pod_record for uid in self.victims if (pod_record := pods.get(uid)) is not None and not pod_record.ended
        ]
        return bool(here) and all(pod_record.is_terminating() for pod_record in here)


class PendingEvictions:
    """Pod by uid -> the eviction that makes room for it."""

    def __init__(self) -> None:
        self._pending_evictions: dict[str, PendingEviction] = {}

    def note(self, pod_uid: str, node: str, victims: Sequence[str], pods: Mapping[str, PodRecord]) -> None:
        """Remember who was asked to go for a pod; what was noted for others and has come about is forgotten."""
        self._pending_evictions = {
            uid: eviction for uid, eviction in self._pending_evictions.items() if eviction.is_pending(pods)
        }
        self._pending_evictions[pod_uid] = PendingEviction(node, tuple(victims))

    def node_of(self, pod_uid: str, pods: Mapping[str, PodRecord]) -> str:
        """The node on which room for the pod is on its way; empty for none, and once all have gone or one stays."""
        eviction = self._pending_evictions.get(pod_uid)
        return eviction.node if eviction is not None and eviction.is_pending(pods) else ""
