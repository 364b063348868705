"""Evictions requested for pods of other schedulers, until the victims have left.

The caller reads the cluster itself and may see the victims leave before this scheduler does. A response that the pod
fits nowhere would meanwhile make it evict pods of another node for nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.scheduler.state.pod_scheduling_record import PodRecord


class PendingEviction(NamedTuple):
    """A node, and the uids of the victims on it."""

    node: str
    victims: tuple[str, ...]

    def is_pending(self, pods: Mapping[str, PodRecord]) -> bool:
        """Returns True while some victims are still there, and all of these are terminating."""
        here = [
            pod_record for uid in self.victims if (pod_record := pods.get(uid)) is not None and not pod_record.ended
        ]
        return bool(here) and all(pod_record.is_terminating() for pod_record in here)


class PendingEvictions:
    """The pending eviction of each pod that victims are evicted for."""

    def __init__(self) -> None:
        self._pending_evictions: dict[str, PendingEviction] = {}

    def note(self, pod_uid: str, node: str, victims: Sequence[str], pods: Mapping[str, PodRecord]) -> None:
        """Records the victims of a pod, and forgets evictions for others that have ended."""
        self._pending_evictions = {
            uid: eviction for uid, eviction in self._pending_evictions.items() if eviction.is_pending(pods)
        }
        self._pending_evictions[pod_uid] = PendingEviction(node, tuple(victims))

    def node_of(self, pod_uid: str, pods: Mapping[str, PodRecord]) -> str:
        """Returns the node that victims are leaving for the pod; empty for none, once all have left, and where one
        stays.
        """
        eviction = self._pending_evictions.get(pod_uid)
        return eviction.node if eviction is not None and eviction.is_pending(pods) else ""
