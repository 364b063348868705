"""The nodes as they are to one class of pods: which Reservations match it, and what each node offers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.reservation_holds import ReservationHolds, ReservedCapacity
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import Offer
from services.scheduler.plugins.reservation.offers_as_arrays import MatchedReservations, OfferEvaluation
from services.scheduler.plugins.reservation.reservation_affinity import Wish
from services.scheduler.plugins.reservation.reservations_a_pod_may_use import decision
from services.scheduler.state.pod_equivalence_class import PodClass


class Matches(NamedTuple):
    """The Reservations that match a class.

    Attributes:
        versions: of the Reservations and of the nodes' labels, with which they were found.
        rows: row -> those there; ascending rows.
        reservations: the same as arrays.
    """

    holds: ReservationHolds
    versions: tuple[int, int]
    rows: Mapping[int, Sequence[ReservedCapacity]]
    reservations: MatchedReservations


def matches_of(
    pod_class: PodClass, wish: Wish, snapshot: CycleSnapshot, available: Mapping[int, Sequence[ReservedCapacity]]
) -> Matches:
    """Returns the Reservations that match a class; found once until a Reservation or a node changes.

    Args:
        available: row -> the Reservations there that may be used, by name.
    """
    table, holds, gates = snapshot.table, snapshot.holds.table, snapshot.cluster_objects.gates
    cached: Matches | None = pod_class.cached.get(Matches)
    versions = holds.version, table.version
    if cached is not None and cached.holds is holds and cached.versions == versions:
        return cached
    rows: dict[int, Sequence[ReservedCapacity]] = {}
    for row, there in sorted(available.items()) if not wish.problem else ():
        found = [each for each in there if decision(pod_class, wish, each, table, row, gates) in ("matched", "ignored")]
        if found:
            rows[row] = found
    reservations = MatchedReservations(pod_class, holds, rows, is_required=wish.affinity is not None)
    pod_class.cached[Matches] = matches = Matches(holds, versions, rows, reservations)
    return matches


class ClassView:
    """The nodes as they are to one class, kept up to date by the rows that change.

    Attributes:
        matched: row -> the Reservations that pods of the class may use, by name; ascending rows.
        evaluation: of the offers; None before the first one, and where the amounts are too large for it.
        rejected: how many rows are rejected.
        results: int64[rows].
        offers: row -> what the node offers, of rows with matched Reservations.
        rows: int64[matched]: the rows with matched Reservations; places: row -> its place there.
        nominates, score, order: [matched]: whether the pod would use a Reservation there, its score and its order.
        ordered: how many of these have an order.
        usable: uid -> row of the matched Reservations that one more pod may use.
    """

    def __init__(self, wish: Wish, matches: Matches, results: Int64) -> None:
        self.wish = wish
        self.matches = matches
        self.matched = matches.rows
        self.evaluation: OfferEvaluation | None = None
        self.results = results
        self.rejected = int(np.count_nonzero(results))
        self.offers: dict[int, Offer] = {}
        self.revision = 0
        self.upto = -1
        self.rows: Int64 = matches.reservations.arrays.rows
        self.places = {row: place for place, row in enumerate(self.matched)}
        self.nominates: Bools = np.zeros(len(self.matched), np.bool_)
        self.score, self.order = np.zeros((2, len(self.matched)), np.int64)
        self.ordered = 0
        self.usable: dict[str, int] = {}
        self.rows_by_uid = {each.uid: row for row, there in self.matched.items() for each in there}
        self.uses_upto = -1

    def set_offer(self, place: int, offer: Offer, result: int) -> None:
        """Sets what a node offers, by its place among those with matches."""
        row, used = int(self.rows[place]), offer.nominated
        self.offers[row] = offer
        before, order = int(self.results[row]), used.order if used is not None else 0
        if before != result:
            self.rejected += bool(result) - bool(before)
            self.results[row] = result
        self.ordered += bool(order) - bool(self.order[place])
        self.nominates[place] = used is not None
        self.score[place], self.order[place] = offer.score, order

    def preferred(self, able: Bools) -> int:
        """Returns the place of the smallest order, the first of equal ones; -1 for none.

        Args:
            able: bool[matched].
        """
        if not self.ordered:
            return -1
        ordered = np.flatnonzero(able & (self.order != 0))
        return int(ordered[self.order[ordered].argmin()]) if len(ordered) else -1
