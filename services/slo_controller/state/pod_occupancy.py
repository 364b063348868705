"""Which pods are on which node, and lately were: a report tells of an instant, and counts with the pods that were there then."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.slo_controller.overcommit.usage_sums import PodFacts, facts_of
from services.slo_controller.state.pod_template import PodShape, shape_of
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.pod import Pod

GONE_KEPT_NS = 1800 * SECOND
"""How long a pod that is gone counts for reports of the time when it was there, on a node that says nothing newer."""


class Seat(NamedTuple):
    """A pod on its node.

    Attributes:
        shape: what it has in common with others of its workload.
        since_ns: when it came there, by its own status.
        gone_ns: when it was seen to have ended or gone; 0 while it is there.
    """

    node: str
    facts: PodFacts
    since_ns: int
    gone_ns: int = 0
    shape: PodShape = PodShape()


class Seats:
    """The pods of all nodes.

    Attributes:
        by_uid: a pod on a node; also after it has gone, while a report may still be about the time before.
        gone: uids of those that are gone, in the order in which they went.
        by_node, by_namespace: their uids.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, Seat] = {}
        self.gone: dict[str, None] = {}
        self.by_node: dict[str, dict[str, None]] = {}
        self.by_namespace: dict[str, dict[str, None]] = {}
        self._shapes: dict[PodShape, PodShape] = {}

    def observed(self, at_ns: int, uid: str, pod: Pod) -> str:
        """Take a pod in as it is now; the node for which that makes a difference, empty when there is none."""
        node = pod.spec.node_name
        if not node:
            return ""
        facts, shape = facts_of(pod), shape_of(pod)
        if not facts.live:
            return self.left(at_ns, uid)
        before = self.by_uid.get(uid)
        if before is not None and before[:2] == (node, facts) and before.shape == shape and not before.gone_ns:
            return ""
        since_ns = before.since_ns if before is not None else _since_ns(pod, at_ns)
        self._seat(uid, Seat(node, facts, since_ns, 0, self._shapes.setdefault(shape, shape)))
        self.gone.pop(uid, None)
        return node

    def left(self, at_ns: int, uid: str) -> str:
        """A pod has ended or gone; its node, empty when it was on none."""
        seat = self.by_uid.get(uid)
        if seat is None or seat.gone_ns:
            return ""
        self.by_uid[uid] = seat._replace(gone_ns=at_ns)
        self.gone[uid] = None
        while self.gone and self.by_uid[first := next(iter(self.gone))].gone_ns < at_ns - GONE_KEPT_NS:
            self._forget(first)
        return seat.node

    def as_of(self, node: str, at_ns: int) -> list[PodFacts]:
        """The pods that were on a node at an instant; without one (0), those that are there."""
        there = map(self.by_uid.__getitem__, self.by_node.get(node, ()))
        if not at_ns:
            return [facts for _, facts, _, gone_ns, _ in there if not gone_ns]
        return [
            facts for _, facts, since_ns, gone_ns, _ in there if since_ns <= at_ns and (not gone_ns or gone_ns > at_ns)
        ]

    def restore(self, seats: Mapping[str, Seat], gone: Sequence[str]) -> None:
        """Take over what was stored."""
        for uid, seat in seats.items():
            self._seat(uid, seat._replace(shape=self._shapes.setdefault(seat.shape, seat.shape)))
        self.gone = dict.fromkeys(gone)

    def _seat(self, uid: str, seat: Seat) -> None:
        self.by_uid[uid] = seat
        self.by_node.setdefault(seat.node, {})[uid] = None
        self.by_namespace.setdefault(_namespace(seat), {})[uid] = None

    def _forget(self, uid: str) -> None:
        seat = self.by_uid.pop(uid)
        self.gone.pop(uid, None)
        for index, key in ((self.by_node, seat.node), (self.by_namespace, _namespace(seat))):
            del index[key][uid]
            if not index[key]:
                del index[key]


def _namespace(seat: Seat) -> str:
    return seat.facts.key.partition("/")[0]


def _since_ns(pod: Pod, at_ns: int) -> int:
    """When a pod came to its node, by its own status; when it was seen there, where that says nothing.

    By the status, so that pods that were there long before this log began count from then on.
    """
    scheduled = pod.condition("PodScheduled")
    for text in (pod.status.start_time, scheduled.last_transition_time if scheduled else None):
        if text:
            try:
                return min(instant_ns(text), at_ns) if at_ns else instant_ns(text)
            except BadTime:
                continue
    return at_ns
