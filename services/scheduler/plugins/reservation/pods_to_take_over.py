"""The pods that the Reservations of one cycle may take over, and those that they do."""

from collections.abc import Iterator, Mapping

import msgspec

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import Drawn
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.reservation.args import ReservationArgs
from services.scheduler.plugins.reservation.pre_allocation import Candidate, TakeOver, candidates_of, take_over
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.reservation import PRE_ALLOCATED, PRE_ALLOCATION, pre_allocated_pods


def pre_allocating(pod_class: PodClass) -> str:
    """Returns the uid of the Reservation that the class stands for, if that may take over pods; empty otherwise."""
    if not pod_class.reserves:
        return ""
    return (pod_class.pod.metadata.annotations or {}).get(PRE_ALLOCATION, "")


class _Candidates:
    """The candidates of one Reservation, by row and by uid -> row."""

    def __init__(self, by_row: dict[int, list[Candidate]]) -> None:
        self.by_row = by_row
        self.rows = {each.uid: row for row, there in by_row.items() for each in there}


class Taking:
    """The pods that Reservations may take over within one cycle."""

    def __init__(self, snapshot: CycleSnapshot, args: ReservationArgs) -> None:
        self._snapshot = snapshot
        self._args = args
        self._taken: dict[str, None] = {}
        self._of: dict[str, _Candidates] = {}  # uid of a Reservation -> its candidates
        self._revision = 0

    def next_revision(self) -> int:
        """Returns another number each time: the nodes of such a Reservation are evaluated anew after every step."""
        self._revision += 1
        return self._revision

    def candidates(self, pod_class: PodClass) -> Mapping[str, int]:
        """Returns uid -> row of the running pods that the Reservation may take over."""
        return self._candidates(pod_class).rows

    def rejected(self, pod_class: PodClass) -> Iterator[tuple[int, tuple[Reason, ...]]]:
        """Yields the rejected rows; the candidates do not count at present."""
        capacity = self._snapshot.holds.table.capacities.get(pre_allocating(pod_class))
        if capacity is None:
            return
        reservation, by_row = capacity.reservation, self._candidates(pod_class).by_row
        is_disabled = reservation.is_cluster_mode and not self._args.pre_allocation.enable_cluster_mode
        for row in range(self._snapshot.size):
            if is_disabled:
                yield row, (Reason("ClusterModeDisabled"),)
            elif row in by_row:
                if reasons := self._take_over(pod_class, row).reasons:
                    yield row, reasons
            elif reservation.requires_pre_allocation:
                yield row, (Reason("NoPodToPreAllocate"),)

    def allocation(self, pod_class: PodClass, row: int) -> dict[str, str]:
        """Returns the pods that the Reservation takes over on a node, as an annotation of its placement."""
        taken = self._take_over(pod_class, row).taken
        if not taken:
            return {}
        named = [(each.uid, each.assignment.name) for each in taken]
        return {PRE_ALLOCATED: msgspec.json.encode(named).decode()}

    def drawn(self, pod_class: PodClass, row: int) -> Drawn:
        """Returns the candidates of a node whose CPUs are not for the Reservation: those that it does not take over."""
        taken = {each.uid for each in self._take_over(pod_class, row).taken}
        others = self._candidates(pod_class).by_row.get(row, ())
        return Drawn("", tuple(each.uid for each in others if each.uid not in taken))

    def note(self, annotations: Mapping[str, str], sign: int) -> None:
        """Notes the pods that a placed Reservation takes over (+1), or no longer does (-1)."""
        for uid, _ in pre_allocated_pods(annotations):
            if sign > 0:
                self._taken[uid] = None
            else:
                del self._taken[uid]
            self._of.clear()

    def _take_over(self, pod_class: PodClass, row: int) -> TakeOver:
        capacity = self._snapshot.holds.table.capacities.get(pre_allocating(pod_class))
        there = self._candidates(pod_class).by_row.get(row)
        if capacity is None or not there:
            return TakeOver(())
        return take_over(self._snapshot, self._args, pod_class, row, capacity, there)

    def _candidates(self, pod_class: PodClass) -> _Candidates:
        uid, holds = pre_allocating(pod_class), self._snapshot.holds
        found = self._of.get(uid)
        if found is None:
            capacity = holds.table.capacities.get(uid)
            by_row = {} if capacity is None else candidates_of(self._snapshot, self._args, capacity, self._taken)
            found = self._of[uid] = _Candidates(by_row)
            holds.candidates.update((each.uid, each.assignment) for there in by_row.values() for each in there)
        return found
