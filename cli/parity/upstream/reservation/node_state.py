"""One node as it is to one pod: its reserve pods are corrected by their owners, and matching ones do not count.

Source: spec/scheduler-workloads.md 1.6, 1.7; upstream pkg/scheduler/plugins/reservation/transformer.go.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from cli.parity.upstream.reservation.matching import Decision, Incoming, decide
from cli.parity.upstream.reservation.quirks import Quirk, Quirks
from cli.parity.upstream.reservation.reserved import (
    Amounts,
    Json,
    Reserved,
    added,
    negative,
    nonzero_of,
    requests_of,
)
from shared.kube.quantity import amounts

_COUNTERS = {
    "unschedulable": "unschedulable",
    "affinity": "affinityUnmatched",
    "notExact": "notExactMatched",
    "name": "nameUnmatched",
    "taints": "taintsUnmatched",
}


class NodeState:
    """A node with its Reservations.

    Attributes:
        reserved: all that hold capacity there, by name.
        usable: those that pods may use.
        matched, unmatched: of the pod; those that do not match count only where pods use them.
        takes_part: there is anything to correct for the pod.
        removed: pods that preemption has taken away, by uid.
    """

    def __init__(
        self, raw: Json, pods: Sequence[Json], reserved: Sequence[Reserved], quirks: Quirks, *, is_refreshed: bool
    ) -> None:
        self.raw = raw
        self.name: str = raw["metadata"]["name"]
        self.allocatable = amounts(raw["status"].get("allocatable") or {})
        self.pods = [pod for pod in pods if pod["spec"].get("nodeName") == self.name]
        self.quirks = quirks
        there = sorted(reserved, key=lambda each: each.name)
        self.reserved = [each for each in there if each.node == self.name and each.is_available]
        sees_use = is_refreshed or Quirk.LATE_CONSUMPTION not in quirks
        self.usable = [each for each in self.reserved if each.is_valid and not (sees_use and each.is_consumed)]
        self.matched: list[Reserved] = []
        self.unmatched: list[Reserved] = []
        self.takes_part = False
        self.decisions: list[Decision] = []
        self.removed: dict[str, Amounts] = {}

    def take_away(self, names: Sequence[str], pod: Incoming) -> None:
        """Removes pods by preemption.

        Upstream credits their requests to the node as it was, or to the Reservation that they use.
        """
        removed = {each["metadata"]["uid"]: each for each in self.pods if each["metadata"]["name"] in names}
        if Quirk.LATE_CONSUMPTION in self.quirks:
            self.removed = {uid: requests_of(each) for uid, each in removed.items()}
            return
        self.pods = [each for each in self.pods if each["metadata"]["uid"] not in removed]
        for each in self.reserved:
            each.owners = {uid: request for uid, request in each.owners.items() if uid not in removed}
        self.usable = [each for each in self.reserved if each.is_valid and not each.is_consumed]
        self.match(pod)

    def match(self, pod: Incoming) -> None:
        """Finds the Reservations that the pod may use."""
        decisions = {each.name: decide(pod, each, self.raw) for each in self.usable}
        self.decisions = list(decisions.values())
        self.matched = [each for each in self.usable if decisions[each.name].is_match]
        self.unmatched = [each for each in self.usable if not decisions[each.name].is_match and each.owners]
        self.takes_part = bool(self.matched) if pod.affinity is not None else bool(self.matched or self.unmatched)

    def _corrected(self) -> list[Reserved]:
        """The reserve pods that count with what their owners leave of them."""
        used = [each for each in self.reserved if each.owners and each not in self.lifted()]
        if Quirk.COUNTED_TWICE in self.quirks:
            used = [each for each in used if self.takes_part and each.is_valid]
        return [
            each
            for each in used
            if Quirk.LATE_CONSUMPTION not in self.quirks or each in self.usable or not each.is_valid
        ]

    def lifted(self) -> list[Reserved]:
        """The reserve pods that do not count."""
        return self.matched if self.takes_part else []

    def raw_requested(self) -> Amounts:
        """Returns requests of all pods and reserve pods."""
        return added(*map(requests_of, self.pods), *(each.held() for each in self.reserved))

    def requested(self) -> Amounts:
        """Returns what counts as requested for the pod."""
        return added(
            self.raw_requested(),
            *(negative(each.counted(self.quirks)) for each in self._corrected()),
            *(negative(each.held()) for each in self.lifted()),
        )

    def nonzero(self) -> Amounts:
        """Returns the same for scores."""
        return added(
            *map(nonzero_of, self.pods),
            *(each.held_nonzero() for each in self.reserved),
            *(negative(each.counted_nonzero(self.quirks)) for each in self._corrected()),
            *(negative(each.held_nonzero()) for each in self.lifted()),
        )

    def pod_count(self) -> int:
        """Returns how many pods count."""
        return len(self.pods) + len(self.reserved) - len(self.lifted())

    def diagnosis(self, pod: Incoming) -> dict[str, Any]:
        """Counts the decisions."""
        results = Counter(each.result for each in self.decisions)
        found: dict[str, Any] = {counter: results[result] for result, counter in _COUNTERS.items() if results[result]}
        if results["ignored"]:
            found["ignored"] = results["ignored"]
        if owned := sum(results.values()) - results["ignored"] - results["owner"]:
            found["ownerMatched"] = owned
            if pod.required_name and results["matched"]:
                found["nameMatched"] = results["matched"]
        if taints := Counter(each.taint for each in self.decisions if each.taint):
            found["taints"] = dict(taints)
        return found

    def credit(self, reserved: Reserved | None = None) -> Amounts:
        """Returns what removed pods free of the node, or of a Reservation."""
        if reserved is not None:
            gone = [uid for uid in reserved.owners if uid in self.removed]
            return added(reserved.allocated(), negative(reserved.allocated(without=gone)))
        inside = {uid for each in self.usable for uid in each.owners}
        return added(*(request for uid, request in self.removed.items() if uid not in inside))
