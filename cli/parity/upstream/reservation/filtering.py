"""Fit of a pod on a node with its Reservations.

Source: spec/scheduler-workloads.md 1.8; upstream pkg/scheduler/plugins/reservation/plugin.go.
"""

from typing import Any

from cli.parity.upstream.reservation.matching import Incoming
from cli.parity.upstream.reservation.node_state import NodeState
from cli.parity.upstream.reservation.quirks import Quirk
from cli.parity.upstream.reservation.reserved import RESTRICTED, Json, Reserved, added, negative

Status = dict[str, Any]

SUCCESS: Status = {"code": "Success"}
NO_MATCH = "node(s) no reservations match reservation affinity"
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def rejected(*reasons: str, code: str = "Unschedulable") -> Status:
    """Returns a status; the record has its reasons sorted."""
    return {"code": code, "reasons": sorted(reasons)}


class Filter:
    """The filter of one pod."""

    def __init__(self, pod: Incoming, args: Json) -> None:
        self._pod = pod
        self._args = args

    def node(self, at: NodeState) -> Status:
        """Filters a node."""
        pod = self._pod
        if pod.affinity is not None and not at.matched:
            return rejected(NO_MATCH, code="UnschedulableAndUnresolvable")
        if not at.matched:
            lacks = Quirk.PREEMPTION_REASON in at.quirks and at.removed and self._lacks_node(at, None)
            return rejected("node(s) preemption failed due to insufficient resources") if lacks else SUCCESS
        return SUCCESS if pod.is_ignored else self.with_reservations(at, at.matched, required=pod.affinity is not None)

    def with_reservations(self, at: NodeState, matched: list[Reserved], *, required: bool) -> Status:
        """Filters a node by some of its matched Reservations."""
        by_node: list[str] = []
        by_reservation: list[str] = []
        for each in matched:
            if self._pod.affinity is None and not any(name in self._pod.request for name in each.names):
                continue
            node = self._lacks_node(at, each)
            inside = self._lacks_reservation(at, each) if each.policy == RESTRICTED else []
            if not node and not inside:
                return SUCCESS
            by_node += node
            by_reservation += inside
        if Quirk.REPEATED_REASONS not in at.quirks:
            by_reservation = list(dict.fromkeys(by_reservation))
        if required:
            reasons = [*dict.fromkeys(by_node), *by_reservation]
            return rejected(*(reasons or ["node(s) no reservation(s) to meet the requirements"]))
        reasons = list(dict.fromkeys(by_node)) or self._lacks_node(at, None)
        return rejected(*reasons) if reasons else SUCCESS

    def _lacks_node(self, at: NodeState, used: Reserved | None) -> list[str]:
        """The resources that the node lacks where the pod uses a Reservation, or none."""
        request, lacking = self._pod.request, list[str]()
        if at.pod_count() - len(at.removed) - len(at.matched) + 1 > at.allocatable.get("pods", 0):
            lacking.append("Insufficient pods by node")
        if not any(request.values()):
            return lacking
        held = [added(each.held(), negative(each.counted(at.quirks))) for each in at.matched if each is not used]
        # Upstream has not summed up the requests of a node that takes no part.
        requested = at.requested() if at.takes_part else {}
        free = added(at.allocatable, negative(requested), *map(negative, held), at.credit())
        if used is not None:
            held_back = added(used.held(), negative(used.counted(at.quirks)), negative(used.available()))
            free = added(free, negative(held_back), at.credit(used))
        for name in dict.fromkeys((*_NATIVE, *request)):
            if name not in _NATIVE and (not request.get(name) or self._ignores(name)):
                continue
            if request.get(name, 0) > free.get(name, 0):
                lacking.append(f"Insufficient {name} by node")
        return lacking

    def _ignores(self, name: str) -> bool:
        group, slash, _ = name.partition("/")
        return name in (self._args.get("ignoredResources") or ()) or (
            bool(slash) and group in (self._args.get("ignoredResourceGroups") or ())
        )

    def _lacks_reservation(self, at: NodeState, used: Reserved) -> list[str]:
        request, lacking, gone = self._pod.request, list[str](), set(used.owners) & set(at.removed)
        owners = len(used.owners)
        detail = Quirk.NAMED_AMOUNTS in at.quirks and bool(self._pod.required_name)
        if "pods" in used.allocatable and owners - len(gone) + 1 > used.allocatable["pods"]:
            more = f", requested: 1, used: {owners - len(gone)}, capacity: {used.allocatable['pods']}" if detail else ""
            lacking.append(f"Reservation(s) Too many pods{more}")
        allocated = used.allocated(without=gone)
        for name in used.names:
            size, capacity = request.get(name, 0), used.allocatable[name] - used.inner.get(name, 0)
            taken = max(0, allocated.get(name, 0))
            if size and size > capacity - taken:
                more = f", requested: {size}, used: {taken}, capacity: {capacity}" if detail else ""
                lacking.append(f"Reservation(s) Insufficient {name}{more}")
        return lacking
