"""Another scheduler's placements as the log has them: compared or not and why, and the pods on each node.

A fold over `cluster` and `scheduling`, for `koord shadow report`; it reads nothing but events.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from services.scheduler.state.pod_equivalence_class import SCHEDULER_NAME
from shared.domain.pod_requests import pod_requests, whole
from shared.events import RecordedEvent
from shared.events.cluster import InitialListCompleted, NodeDeleted, NodeObserved, PodDeleted, PodObserved
from shared.events.log import WriterStarted
from shared.events.scheduling import PlacementCompared
from shared.kube.node import Node
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.quantity import BadQuantity, amount, nanos

BOUND_BEFORE = "BoundBefore"
NAMED_ITS_NODE = "NamedItsNode"
NO_LEADER = "NoLeader"

NOT_COMPARED: Final[Mapping[str, str]] = {
    BOUND_BEFORE: "bound before the gateway had listed everything",
    NAMED_ITS_NODE: "created with a node name, so no scheduler chose",
    NO_LEADER: "no scheduler of ours led in shadow mode at that moment",
}
"""Reason why a binding was not compared -> its text."""

RESOURCES = ("cpu", "memory")


class Compared(NamedTuple):
    """A comparison, and its own `context/seq`."""

    event: str
    found: PlacementCompared


class _Bound(NamedTuple):
    """A binding as of its first observation."""

    scheduler: str
    reason: str
    at_ns: int


class ShadowHistory:
    """The fold. Contexts may be folded one after the other.

    Attributes:
        compared: pod uid -> its comparison.
        bound: pod uid -> its binding, also of pods that are gone.
        pods: uid -> the pod, of all pods that are there.
        nodes: name -> the node.
    """

    def __init__(self) -> None:
        self.compared: dict[str, Compared] = {}
        self.bound: dict[str, _Bound] = {}
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self._listed = True  # a log without the gateway's start had it dropped long ago

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        match record.event:
            case PodObserved(pod_uid=uid, object=pod):
                if pod.spec.node_name and uid not in self.bound:
                    self.bound[uid] = _Bound(_scheduler(pod), self._reason(uid, pod), record.at_ns)
                self.pods[uid] = pod
            case PodDeleted(pod_uid=uid):
                self.pods.pop(uid, None)
            case NodeObserved(node=name, object=node):
                self.nodes[name] = node
            case NodeDeleted(node=name):
                self.nodes.pop(name, None)
            case WriterStarted() if record.context == "cluster":
                self._listed = False
            case InitialListCompleted():
                self._listed = True
            case PlacementCompared(pod_uid=uid) as found:
                self.compared[uid] = Compared(f"{record.context}/{record.seq}", found)

    def running(self) -> dict[str, tuple[str, dict[str, int]]]:
        """Returns pod uid -> (its node, its request), for all pods that run."""
        return {
            uid: (pod.spec.node_name, _request(pod))
            for uid, pod in self.pods.items()
            if pod.spec.node_name and pod.status.phase not in ENDED_PHASES
        }

    def allocatable(self) -> dict[str, dict[str, int]]:
        """Returns node -> cpu in milli-cores and memory in bytes."""
        return {name: _read(node.status.allocatable or {}) for name, node in sorted(self.nodes.items())}

    def _reason(self, uid: str, pod: Pod) -> str:
        """Returns the reason why a binding that is observed now was not compared, if it was not."""
        if not self._listed:
            return BOUND_BEFORE
        condition = pod.condition("PodScheduled")
        if uid not in self.pods and (condition is None or condition.status != "True"):
            return NAMED_ITS_NODE
        return NO_LEADER


def _scheduler(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(SCHEDULER_NAME) or pod.spec.scheduler_name


def _request(pod: Pod) -> dict[str, int]:
    try:
        requests = whole(pod_requests(pod))
    except BadQuantity:
        return dict.fromkeys(RESOURCES, 0)
    return {name: requests.get(name, 0) for name in RESOURCES}


def _read(quantities: Mapping[str, str]) -> dict[str, int]:
    amounts = dict.fromkeys(RESOURCES, 0)
    for name in RESOURCES:
        try:
            amounts[name] = amount(name, nanos(quantities.get(name, "0")))
        except BadQuantity:
            continue
    return amounts
