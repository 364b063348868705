"""Filters nodes by the Reservations that a pod may use there, and prefers nodes that hold capacity for it.

The reserve pods of those Reservations do not count while a class is evaluated (`CycleTransaction.focus`), so that every
other plugin sees the node with their capacity. This plugin takes back what that alone would allow: a pod uses one
Reservation at a time, and all others count against it.

Source: spec/scheduler-workloads.md 1.5-1.10; upstream pkg/scheduler/plugins/reservation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.cache.reservation_holds import NOTHING_DRAWN, Drawn, ReservedCapacity
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState, SparseScores
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64, Rows
from services.scheduler.kernels.reservation_offers import NONE_PASSES
from services.scheduler.plugins.reservation import SPEC
from services.scheduler.plugins.reservation.args import ReservationArgs
from services.scheduler.plugins.reservation.filter_and_nominate_reservations import Offer, offer_of
from services.scheduler.plugins.reservation.offers_as_arrays import OfferEvaluation
from services.scheduler.plugins.reservation.pods_to_take_over import Taking, pre_allocating
from services.scheduler.plugins.reservation.reservation_affinity import Wish, wish_of
from services.scheduler.plugins.reservation.reservations_matching_pod_class import ClassView, matches_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.reservation import ALIGNED, DEFAULT, RESERVATION_PLACEMENT, allocated_text
from shared.kube.system_annotations import RESERVATION_ALLOCATED

PREFERRED_SCORE = 1000
"""Raw score of the node whose nominated Reservation has the smallest order."""

_UNRESOLVABLE = frozenset(
    (
        "NoPodToPreAllocate",
        "ClusterModeDisabled",
        "NoReservationMatches",
        "UnreadableReservationAffinity",
        "ReservationPolicyConflict",
        "ReservationNodeMismatch",
    )
)


class ReservationPlugin(Plugin):
    """Pods use Reservations; Reservations are placed."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: ReservationArgs | None = None) -> None:
        self.args = args or ReservationArgs()
        self._ids: dict[tuple[Reason, ...], int] = {}
        self._reasons: list[tuple[Reason, ...]] = [()]

    def id_of(self, reasons: tuple[Reason, ...]) -> int:
        """The filter result of these reasons: 0 for none. There are as many as combinations of resources."""
        if not reasons:
            return 0
        found = self._ids.get(reasons)
        if found is None:
            found = self._ids[reasons] = len(self._reasons)
            self._reasons.append(reasons)
        return found

    def new_state(
        self,
        snapshot: CycleSnapshot,
        plugin_cache: PluginCache | None,  # noqa: ARG002
        now_ns: int,  # noqa: ARG002
    ) -> PluginCycleState:
        """The state; it reads the Reservations of the snapshot."""
        return ReservationState(self, snapshot)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:
        """The reasons of a filter result."""
        found = self._reasons[result]
        if found and found[0].code == "UnreadableReservationAffinity":
            return (Reason(found[0].code, wish_of(pod_class).problem),)
        return found

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Evicting pods makes no Reservation match."""
        return self._reasons[result][0].code in _UNRESOLVABLE

    def may_preempt(self, pod_class: PodClass) -> bool:
        """Returns False for reserve pods, unless the arguments permit it, and for those that take over pods."""
        if not pod_class.reserves:
            return True
        return bool(self.args.enable_preemption) and not pre_allocating(pod_class)


class ReservationState(PluginCycleState):
    """Reservations and their use within one cycle."""

    def __init__(self, plugin: ReservationPlugin, snapshot: CycleSnapshot) -> None:
        self._plugin = plugin
        self._snapshot = snapshot
        self._views: dict[PodClass, ClassView] = {}
        self._changed: list[int] = []  # rows with Reservations that a step changed, or its undoing
        self._overlaid: list[list[int]] = []  # such rows of each `overlay` that is not undone, oldest first
        self._taking = Taking(snapshot, plugin.args)
        self._available = snapshot.holds.table.available(snapshot.table)

    # filter and score

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns False for pods that name no Reservation and that none names."""
        if pod_class.reserves or (pod_class.holds_capacity and self._available):
            return True
        wish = _cached_wish(pod_class)
        return wish.affinity is not None or bool(self._available and self._view(pod_class).matched)

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """Rejects nodes on which the pod fits neither with a Reservation nor without one."""
        if pod_class.reserves:
            return self._filter_reserve_pod(pod_class, rows)
        view = self._current(pod_class)
        conflicts = self._policy_conflicts(ALIGNED) if pod_class.holds_capacity else ()
        if not conflicts and (view.wish.is_ignored or not view.rejected):
            return None
        results = view.results.copy()
        results[list(conflicts)] = self._plugin.id_of((Reason("ReservationPolicyConflict"),))
        return results[rows]

    def _filter_reserve_pod(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        policy, _, pinned = (pod_class.pod.metadata.annotations or {}).get(RESERVATION_PLACEMENT, "").partition("/")
        results = np.zeros(self._snapshot.size, np.int64)
        conflicts = self._policy_conflicts(policy)
        results[list(conflicts)] = self._plugin.id_of((Reason("ReservationPolicyConflict"),))
        if pinned:
            row = self._snapshot.table.rows.get(pinned, self._snapshot.size)
            others = np.arange(self._snapshot.size) != row
            results[others] = self._plugin.id_of((Reason("ReservationNodeMismatch"),))
        if pre_allocating(pod_class):
            for row, reasons in self._taking.rejected(pod_class):
                results[row] = results[row] or self._plugin.id_of(reasons)
        return results[rows] if results.any() else None

    def _policy_conflicts(self, policy: str) -> Sequence[int]:
        """Returns the rows with Reservations of the other kind of allocate policy: with the default one, or without."""
        return [
            row
            for row, there in self._available.items()
            if any((policy == DEFAULT) != (each.reservation.policy == DEFAULT) for each in self._open(there))
        ]

    def _open(self, capacities: Iterable[ReservedCapacity]) -> list[ReservedCapacity]:
        return [each for each in capacities if self._snapshot.holds.is_open(each)]

    def scores(self, pod_class: PodClass, feasible: Bools) -> SparseScores | None:
        """Scores nodes by the Reservation that the pod would use there."""
        if pod_class.reserves:
            return None
        raw = self.raw_scores(pod_class, feasible)
        if raw is None:
            return None
        highest = int(raw.max())
        return SparseScores(self._view(pod_class).rows, MAX_SCORE * raw // highest if highest else raw)

    def raw_scores(self, pod_class: PodClass, feasible: Bools) -> Int64 | None:
        """Returns int64[matched]: the scores before they are normalised, of the rows with Reservations that match the
        class; None where no feasible node has one for the pod.
        """
        view = self._current(pod_class)
        able = view.nominates & feasible[view.rows]
        if not able.any():
            return None
        raw = np.where(able, view.score, 0)
        place = view.preferred(able)
        if place >= 0:
            raw[place] = PREFERRED_SCORE
        return raw

    def preferred(self, pod_class: PodClass, feasible: Bools) -> int:
        """Returns the feasible row on which the pod would use the Reservation with the smallest order; -1 for none."""
        view = self._current(pod_class)
        place = view.preferred(view.nominates & feasible[view.rows])
        return int(view.rows[place]) if place >= 0 else -1

    def matched(self, pod_class: PodClass) -> Mapping[int, Sequence[ReservedCapacity]]:
        """Returns row -> the Reservations that one more pod of the class may use there, by name."""
        view = self._view(pod_class)
        opened = {row: self._open(capacities) for row, capacities in view.matched.items()}
        return {row: capacities for row, capacities in opened.items() if capacities}

    def offers(self, pod_class: PodClass) -> Mapping[int, Offer]:
        """Returns row -> what the node offers to the class in focus, of rows with Reservations that match it."""
        return self._current(pod_class).offers

    def revision(self, pod_class: PodClass) -> int:
        """Grows when a step changed a node on which the class may use a Reservation."""
        if pre_allocating(pod_class):
            return self._taking.next_revision()
        if pod_class.reserves:
            return len(self._changed)  # whether a Reservation is consumed: its policy then conflicts with none
        return self._current(pod_class).revision

    def ignores_own_placements(self, pod_class: PodClass) -> bool:
        """Returns False while pods of the class may use a Reservation; consumed ones have no part in its placements."""
        return not (pod_class.reserves or self.usable_holds(pod_class))

    # lifted Reservations

    def usable_holds(self, pod_class: PodClass) -> Mapping[str, int]:
        """The Reservations that match the class, and that have not been consumed."""
        if pre_allocating(pod_class):
            return self._taking.candidates(pod_class)
        if pod_class.reserves or not self._available:
            return {}
        view, holds = self._view(pod_class), self._snapshot.holds
        if view.uses_upto == len(holds.changes):
            return view.usable
        changed = view.rows_by_uid if view.uses_upto < 0 else holds.changes[view.uses_upto :]
        view.uses_upto = len(holds.changes)
        opened = {uid: holds.is_open(holds.table.capacities[uid]) for uid in changed if uid in view.rows_by_uid}
        if any(is_open != (uid in view.usable) for uid, is_open in opened.items()):
            usable = {uid: row for uid, row in view.usable.items() if opened.get(uid, True)}
            view.usable = usable | {uid: view.rows_by_uid[uid] for uid, is_open in opened.items() if is_open}
        return view.usable

    def drawn(self, pod_class: PodClass, row: int) -> Drawn:
        """The nominated Reservation; the others of the node are not used besides. Ignored ones all are."""
        if pre_allocating(pod_class):
            return self._taking.drawn(pod_class, row)
        if pod_class.reserves or row not in self._available or (view := self._current(pod_class)).wish.is_ignored:
            return NOTHING_DRAWN
        if row not in view.matched:
            return NOTHING_DRAWN
        offer = view.offers.get(row)
        used = offer.nominated.uid if offer is not None and offer.nominated is not None else ""
        lifted = self._snapshot.holds.lifted
        return Drawn(used, tuple(each.uid for each in view.matched[row] if each.uid in lifted and each.uid != used))

    # steps

    def counts(self, pod_class: PodClass) -> bool:
        """Counts pods of any class on nodes with Reservations; lifting and putting back reserve pods changes nothing."""
        return bool(self._available) and not pod_class.reserves

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Notes the changed row."""
        if row in self._available:
            self._changed.append(row)

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:
        """Notes the changed row."""
        self.place(pod, pod_class, row)

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:  # noqa: ARG002
        """Notes the changed row."""
        if row in self._available:
            self._changed.append(row)

    def overlay(self, rows: Int64, deltas: Mapping[str, Int64]) -> None:  # noqa: ARG002
        """Notes the rows whose capacity changes: what a node offers beside its Reservations depends on it."""
        self._overlaid.append([row for row in rows.tolist() if row in self._available])
        self._changed += self._overlaid[-1]

    def undo_overlay(self) -> None:
        """Notes the rows of the last `overlay` again."""
        self._changed += self._overlaid.pop()

    # allocation

    def reserve(self, pod_class: PodClass, row: int) -> Mapping[str, str] | int:
        """Chooses the Reservation that the pod uses on the node."""
        if pod_class.reserves:
            return self._taking.allocation(pod_class, row) if pre_allocating(pod_class) else {}
        view = self._current(pod_class)
        if view.wish.is_ignored:
            return {}
        offer = view.offers.get(row)
        if offer is not None and offer.nominated is not None:
            return {RESERVATION_ALLOCATED: allocated_text(offer.nominated.name, offer.nominated.uid)}
        return self._plugin.id_of((Reason("NoReservationMatches"),)) if view.wish.affinity is not None else {}

    def assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Notes the pods that a Reservation takes over."""
        self._taking.note(annotations, +1)

    def undo_assume(self, pod: PodRecord, pod_class: PodClass, row: int, annotations: Mapping[str, str]) -> None:  # noqa: ARG002
        """Notes that it does not."""
        self._taking.note(annotations, -1)

    # views of classes

    def _view(self, pod_class: PodClass) -> ClassView:
        view = self._views.get(pod_class)
        if view is not None:
            return view
        wish = _cached_wish(pod_class)
        code = "UnreadableReservationAffinity" if wish.problem else "NoReservationMatches"
        refused = self._plugin.id_of((Reason(code),)) if wish.affinity is not None else 0
        results = np.full(self._snapshot.size, refused, np.int64)
        matches = matches_of(pod_class, wish, self._snapshot, self._available)
        view = self._views[pod_class] = ClassView(wish, matches, results)
        return view

    def _current(self, pod_class: PodClass) -> ClassView:
        """Returns the view of the class that is in focus, with all steps so far."""
        view, changed = self._view(pod_class), self._changed
        if view.upto == len(changed) or view.wish.is_ignored:
            return view
        holds, usable = self._snapshot.holds, self.usable_holds(pod_class)
        if holds.focused is not usable and holds.lifted.keys() != usable.keys():
            return view  # another class is in focus
        rows = view.matched if view.upto < 0 else dict.fromkeys(changed[view.upto :])
        view.upto = len(changed)
        if view.evaluation is None and view.matches.reservations.is_exact:
            reservations = view.matches.reservations
            view.evaluation = OfferEvaluation(reservations, self._snapshot, self._plugin.args, pod_class)
        places = [view.places[row] for row in rows if row in view.places]
        for place, offer in zip(places, self._offers(view, pod_class, places), strict=True):
            view.revision += 1
            view.set_offer(place, offer, self._plugin.id_of(offer.reasons))
        return view

    def _offers(self, view: ClassView, pod_class: PodClass, places: Sequence[int]) -> Iterator[Offer]:
        """Yields what nodes offer to the class in focus, by their places among those with matches."""
        capacities = view.matches.reservations.capacities
        chosen = view.evaluation.choose(places) if view.evaluation is not None else ((NONE_PASSES, 0) for _ in places)
        for place, (number, score) in zip(places, chosen, strict=True):
            yield Offer((), capacities[number], score) if number >= 0 else self._without(view, pod_class, place)

    def _without(self, view: ClassView, pod_class: PodClass, place: int) -> Offer:
        """Returns what a node offers where none of its Reservations passes, with the reasons."""
        row = int(view.rows[place])
        matched = self._open(view.matched[row])
        if matched:
            return offer_of(self._snapshot, self._plugin.args, pod_class, row, matched, view.wish)
        if view.wish.affinity is not None:
            return Offer((Reason("NoReservationMatches"),))
        return Offer(())  # the node without a Reservation: every other plugin evaluates that


def _cached_wish(pod_class: PodClass) -> Wish:
    wish: Wish | None = pod_class.cached.get(Wish)
    if wish is None:
        wish = pod_class.cached[Wish] = wish_of(pod_class)
    return wish
