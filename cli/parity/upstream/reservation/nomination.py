"""Nomination of a Reservation, scores and Reserve.

Source: spec/scheduler-workloads.md 1.9, 1.10; upstream pkg/scheduler/plugins/reservation/{nominator,scoring}.go.
"""

from cli.parity.upstream.reservation.filtering import SUCCESS, Filter, Status, rejected
from cli.parity.upstream.reservation.matching import Incoming
from cli.parity.upstream.reservation.node_state import NodeState
from cli.parity.upstream.reservation.quirks import Quirk
from cli.parity.upstream.reservation.reserved import Reserved

PREFERRED_SCORE = 1000


class Nominations:
    """The Reservation that a pod would use on each node.

    Attributes:
        filters: node -> Reservation -> whether it may be nominated.
        nominated: node -> Reservations of which one is nominated; several are a tie, none an empty list.
        scores: node -> Reservation -> score.
    """

    def __init__(self, pod: Incoming, nodes: list[NodeState], by: Filter) -> None:
        self._pod, self._by = pod, by
        self.filters: dict[str, dict[str, Status]] = {}
        self.nominated: dict[str, list[Reserved]] = {}
        self.scores: dict[str, dict[str, int]] = {}
        self._quirks = nodes[0].quirks
        self._matched = {node.name: node.matched for node in nodes}
        for node in nodes:
            if node.matched:
                self._nominate(node)

    def _nominate(self, at: NodeState) -> None:
        statuses = {each.name: self._filter(at, each) for each in at.matched}
        self.filters[at.name] = statuses
        self.scores[at.name] = {each.name: score_of(self._pod, each) for each in at.matched}
        if len(at.matched) == 1 and self._pod.affinity is not None:
            self.nominated[at.name] = list(at.matched)
            return
        passing = [each for each in at.matched if statuses[each.name] == SUCCESS]
        if ordered := [each for each in passing if each.order]:
            passing = [each for each in ordered if each.order == min(other.order for other in ordered)]
        elif passing:
            best = max(self.scores[at.name][each.name] for each in passing)
            passing = [each for each in passing if self.scores[at.name][each.name] == best]
        self.nominated[at.name] = passing

    def _filter(self, at: NodeState, reserved: Reserved) -> Status:
        if reserved.is_consumed:
            return rejected("reservation has allocateOnce enabled and has already been allocated")
        return self._by.with_reservations(at, [reserved], required=True)

    def preferred(self) -> str:
        """The node that holds the smallest order; empty for none."""
        found = self._matched if Quirk.ORDER_OF_ANY in self._quirks else self.nominated
        ordered = [(each.order, node) for node, usable in found.items() for each in usable if each.order]
        return min(ordered, key=lambda entry: entry[0])[1] if ordered else ""

    def node_score(self, node: str) -> int:
        """The score of a node before it is normalised."""
        if node == self.preferred():
            return PREFERRED_SCORE
        found = self.nominated.get(node)
        return self.scores[node][found[0].name] if found else 0

    def shown(self, node: str) -> str | None:
        """The name of a nominated Reservation; None for none."""
        found = self.nominated[node]
        return found[0].name if found else None


def score_of(pod: Incoming, reserved: Reserved) -> int:
    """Returns the share of a Reservation that is used with the pod, the mean over its resources."""
    used, total = reserved.allocated(), 0
    sizes = {name: size for name, size in reserved.allocatable.items() if size}
    for name, size in sizes.items():
        requested = pod.request.get(name, 0) + used.get(name, 0)
        total += 100 * requested // size if requested <= size else 0
    return total // len(sizes) if sizes else 0
