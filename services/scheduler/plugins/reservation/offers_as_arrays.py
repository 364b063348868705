"""The Reservations that match a class as arrays, from which the one that a pod would use on each node is computed."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import ReservationHolds, ReservedCapacity, Use
from services.scheduler.kernels.reservation_offers import (
    AMOUNTS,
    CONFINES,
    CONSIDERED,
    FACTS,
    INNER,
    MOST_PODS,
    ORDER,
    PER_RESOURCE,
    RESTRICTED,
    WHOLE,
    Matched,
    Requested,
    Used,
    choose_reservations,
)
from services.scheduler.plugins.reservation.args import ReservationArgs
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import NATIVE, is_considered, is_restricted
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.domain.scheduler_gates import SKIP_FITS_NODE

LARGEST = 1 << 50
"""Upper bound of what Reservations hold, so that sums and percentages stay within int64."""

MOST_USED = 1 << 60
"""What is used beyond this counts as this: it exceeds all that a Reservation holds."""


class MatchedReservations:
    """The Reservations that match a class, as the kernel takes them; they stay the same until one of them changes.

    Attributes:
        capacities: all of them, those of one node neighbours.
        resources: the names of the resources, in the order of the arrays; numbers: name -> place there.
        starts: number of the first Reservation of each node, as a list.
        is_exact: all amounts are small enough for the kernel.
    """

    def __init__(
        self,
        pod_class: PodClass,
        holds: ReservationHolds,
        rows: Mapping[int, Sequence[ReservedCapacity]],
        *,
        is_required: bool,
    ) -> None:
        self.capacities = tuple(capacity for there in rows.values() for capacity in there)
        amounts = [capacity.amounts for capacity in self.capacities]
        names = (*NATIVE, *pod_class.request, *(name for each in amounts for name in each))
        self.resources = tuple(dict.fromkeys(names))
        self.numbers = {name: number for number, name in enumerate(self.resources)}
        whole = [holds.assigned[capacity.uid].pod_class.request for capacity in self.capacities]
        inner = [capacity.inner for capacity in self.capacities]
        self.is_exact = all(size <= LARGEST for each in (*amounts, *whole, *inner) for size in each.values())
        self.starts = list(accumulate((len(there) for there in rows.values()), initial=0))
        self.arrays = Matched(
            np.array(list(rows), np.int64),
            np.array(self.starts, np.int64),
            np.zeros((len(self.capacities), FACTS), np.int64),
            np.zeros((PER_RESOURCE, len(self.capacities), len(self.resources)), np.int64),
        )
        if self.is_exact:
            for number, capacity in enumerate(self.capacities):
                considered = is_considered(pod_class, capacity, is_required=is_required)
                self._set(number, capacity, whole[number], considered=considered)

    def _set(self, number: int, capacity: ReservedCapacity, whole: Mapping[str, int], *, considered: bool) -> None:
        facts, of_resources = self.arrays.facts[number], self.arrays.of_resources[:, number]
        facts[CONSIDERED], facts[CONFINES] = considered, is_restricted(capacity)
        facts[MOST_PODS], facts[ORDER] = capacity.amounts.get("pods", -1), capacity.order
        for which, sizes in ((AMOUNTS, capacity.amounts), (INNER, capacity.inner), (WHOLE, whole)):
            for name, size in sizes.items():
                if name in self.numbers:
                    of_resources[which, self.numbers[name]] = size
        for name in capacity.restricted:
            of_resources[RESTRICTED, self.numbers[name]] = 1


class OfferEvaluation:
    """The offer of the nodes with matching Reservations to a class, within one cycle."""

    def __init__(
        self, matched: MatchedReservations, snapshot: CycleSnapshot, args: ReservationArgs, pod_class: PodClass
    ) -> None:
        self._matched = matched
        self._snapshot = snapshot
        request, names = pod_class.request, matched.resources
        self._request = Requested(
            np.array([request.get(name, 0) for name in names], np.int64),
            np.array([snapshot.column(name) for name in names], np.int64),
            np.array(
                [name in NATIVE or bool(request.get(name) and not args.ignores(name)) for name in names], np.int64
            ),
            int(SKIP_FITS_NODE not in snapshot.cluster_objects.gates),
            int(any(request.values())),
        )
        size = len(matched.capacities)
        self._used = Used(np.zeros((size, len(names)), np.int64), np.zeros(size, np.int64), np.zeros(size, np.int64))
        self._read: list[Use | None] = [None] * size  # the use that is in the arrays

    def choose(self, places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yields for each node, by its place among those with matches, the number of the Reservation that a pod would use
        there, or a number of `reservation_offers`, and its score.
        """
        starts = self._matched.starts
        for place in places:
            for number in range(starts[place], starts[place + 1]):
                self._set_use(number)
        chosen, scores = np.empty((2, len(places)), np.int64)
        choose_reservations(
            np.array(places, np.int64),
            self._matched.arrays,
            self._used,
            self._request,
            self._snapshot.amounts(),
            chosen,
            scores,
        )
        return zip(chosen.tolist(), scores.tolist(), strict=True)

    def _set_use(self, number: int) -> None:
        """Reads the present use of a Reservation into the arrays."""
        capacity = self._matched.capacities[number]
        use = self._snapshot.holds.use_of(capacity.uid)
        if self._read[number] is use:
            return
        self._read[number] = use
        amounts = self._used.amounts[number]
        amounts[:] = 0
        for name, size in use.amounts.items():
            amounts[self._matched.numbers[name]] = min(size, MOST_USED)
        self._used.owners[number] = use.owners
        self._used.is_open[number] = self._snapshot.holds.is_open(capacity)
