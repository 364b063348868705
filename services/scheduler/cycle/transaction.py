"""The nodes of a settled cache, for one cycle or one query: pods are placed and removed, capacity
is changed, and any step can be undone.

    mark = transaction.mark()
    transaction.remove(assignment, row)
    if not transaction.fits(profile, pod_class, row):
        transaction.undo(mark)

After an undo all arrays and all later choices are the same bit for bit. Upstream copies a NodeInfo and the CycleState
instead (Kubernetes pkg/scheduler/framework/preemption).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import Capacity, CycleSnapshot
from services.scheduler.cache.reservation_holds import NOTHING_DRAWN, Use, used_reservation
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.rows_changed_by_this_cycle import RowChange, RowChanges
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.post_filter import Mark
from services.scheduler.framework.pre_bind_preparation import Preparation
from services.scheduler.framework.profile import Profile
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.errors import KoordError


class UnknownResource(KoordError):
    """An overlay has resources for which the node table has no column."""

    def __init__(self, resources: Sequence[str]) -> None:
        super().__init__(
            f"capacity of {', '.join(resources)} cannot be changed: no node and no pod has it; correct the name, or add"
            " a node that has it"
        )


class Placement(NamedTuple):
    """A step that placed equal pods, each on its row.

    Attributes:
        allocation: annotations of what is reserved for the pod below its node; only for a pod that is placed alone.
        first: place of its first change among the changed rows.
    """

    pods: Sequence[PodRecord]
    pod_class: PodClass
    rows: Sequence[int]
    allocation: Mapping[str, str]
    first: int


class Move(NamedTuple):
    """A step that removed a running pod (-1), or put it back (+1).

    Attributes:
        first: place of its change among the changed rows.
        hold: uid of the Reservation whose reserve pod it is; empty for a pod.
    """

    assignment: Assignment
    row: int
    sign: int
    first: int
    hold: str = ""


class HoldUse(NamedTuple):
    """A step that changed the use of a Reservation.

    Attributes:
        before: what undoes it.
    """

    uid: str
    before: Use | None


class Overlay(NamedTuple):
    """A step that changed the allocatable amounts of rows.

    Attributes:
        before: their amounts before the step.
        first: place of its first change among the changed rows.
    """

    rows: Int64
    before: Capacity
    first: int


class Prepared(NamedTuple):
    """A step in which a plugin requested what a pod needs before it can be bound."""

    state: PluginCycleState
    preparation: Preparation


class CycleTransaction:
    """The nodes as a settled cache has them, with the steps of one cycle or one query.

    Attributes:
        snapshot: requested amounts of the nodes.
        plugin_states: plugin -> its state.
        changes: the rows that the steps have changed.
        can_lift: there are Reservations, so that `focus` may have an effect.
    """

    def __init__(self, cache: CycleInputs, now_ns: int) -> None:
        self.snapshot = CycleSnapshot(cache.table, cache.pod_index, cache.cluster_objects, cache.on)
        self.plugin_states: dict[Plugin, PluginCycleState] = {
            plugin: plugin.new_state(self.snapshot, plugin_cache, now_ns)
            for plugin, plugin_cache in cache.plugin_caches.items()
        }
        for scheduler, profile in cache.profiles.items():
            self._join(scheduler, profile)
        self.changes = RowChanges()
        self._journal: list[Placement | Move | HoldUse | Overlay | Prepared] = []
        self._active: dict[Profile, ActivePlugins] = {}
        states = self.plugin_states.items()
        self._all_counting = [state for plugin, state in states if plugin.spec.counts_placements]
        self._all_removing = [state for plugin, state in states if plugin.spec.counts_removals]
        self._counting: dict[PodClass, list[PluginCycleState]] = {}
        self._removing: dict[PodClass, list[PluginCycleState]] = {}
        self._reserving = {plugin: state for plugin, state in states if plugin.spec.reserves}
        # Without Reservations nothing is ever lifted.
        self._lifting = {
            plugin: state for plugin, state in states if plugin.spec.lifts_holds and self.snapshot.holds.table
        }
        self._lifting_by_profile: dict[Profile, list[PluginCycleState]] = {}
        self.can_lift = bool(self._lifting)
        self._keeping = [state for plugin, state in states if plugin.spec.keeps_capacity]

    def _join(self, scheduler: str, profile: Profile) -> None:
        by_name = {plugin.name: self.plugin_states[plugin] for plugin in profile.plugins}
        for plugin in profile.plugins:
            if others := {name: by_name[name] for name in plugin.spec.joins if name in by_name}:
                self.plugin_states[plugin].join(scheduler, others)

    # evaluation

    def active(self, profile: Profile) -> ActivePlugins:
        """Returns the plugins of a profile with their states."""
        active = self._active.get(profile)
        if active is None:
            active = self._active[profile] = ActivePlugins(profile, self.plugin_states, self.snapshot)
        return active

    def evaluation(self, profile: Profile, pod_class: PodClass) -> ClassEvaluation:
        """Evaluates all nodes for a class; the result follows the steps of the transaction by `catch_up`."""
        self.focus(profile, pod_class)
        return ClassEvaluation(self.active(profile), self.snapshot.table, pod_class, self.changes)

    def focus(self, profile: Profile, pod_class: PodClass) -> None:
        """Evaluates nodes for pods of the class from now on: the reserve pods of the Reservations that these may use do
        not count, those of all others do.

        An evaluation catches up only while its class is in focus.
        """
        if not self._lifting:
            return
        holds = self.snapshot.holds
        # The filter of a plugin that lifts takes back what lifting alone would allow.
        found = [state.usable_holds(pod_class) for state in self._lifting_of(profile)]
        usable = found[0] if len(found) == 1 else {uid: row for each in found for uid, row in each.items()}
        if holds.focused is usable:
            return
        lifted = holds.lifted
        if lifted.keys() != usable.keys():
            for uid, row in [entry for entry in lifted.items() if entry[0] not in usable]:
                self._move(holds.assignment(uid), row, +1, uid)
            for uid, row in usable.items():
                if uid not in lifted:
                    self._move(holds.assignment(uid), row, -1, uid)
        holds.focused = usable

    def _lifting_of(self, profile: Profile) -> list[PluginCycleState]:
        """Returns the plugin states that lift Reservations for pods of a profile."""
        lifting = self._lifting_by_profile.get(profile)
        if lifting is None:
            lifting = [state for plugin, state in self._lifting.items() if plugin in profile.filters]
            self._lifting_by_profile[profile] = lifting
        return lifting

    def fits(self, profile: Profile, pod_class: PodClass, row: int) -> bool:
        """Returns True when every filter admits the class to the node in its present state."""
        self.focus(profile, pod_class)
        return not any(self.plugin_states[plugin].filter_at(pod_class, row) for plugin in profile.filters)

    # steps

    def place(
        self, pod: PodRecord, pod_class: PodClass, row: int, allocation: Mapping[str, str], *, predictable: bool = True
    ) -> None:
        """Counts a pod on the node with its allocation there.

        Args:
            predictable: False where no look-ahead has expected the pod: its row is evaluated again in any case.
        """
        first = len(self.changes.entries)
        self._journal.append(Placement((pod,), pod_class, (row,), allocation, first))
        self.snapshot.place(pod_class, row)
        counting = self._counting_of(pod_class)
        for state in counting:
            state.place(pod, pod_class, row)
        if allocation:
            for state in self._reserving.values():
                state.assume(pod, pod_class, row, allocation)
        predicted = predictable and not allocation and all(state.matched_prediction() for state in counting)
        self.changes.entries.append(RowChange(row, pod_class, predicted))
        if allocation:
            self._use_hold(allocation, pod_class, row, +1)

    def place_all(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> int:
        """Counts equal pods without an allocation, each on another node, as far as they change their nodes as
        predicted; returns how many.
        """
        counting = self._counting_of(pod_class)
        count = min((state.count_predicted(pods, pod_class, rows) for state in counting), default=len(rows))
        if not count:
            return 0
        pods, rows = pods[:count], rows[:count]
        self._journal.append(Placement(pods, pod_class, rows, {}, len(self.changes.entries)))
        self.snapshot.place_all(pod_class, rows)
        for state in counting:
            state.place_all(pods, pod_class, rows)
        self.changes.entries += [RowChange(row, pod_class, predicted=True) for row in rows]
        return count

    def remove(self, assignment: Assignment, row: int) -> None:
        """Removes a pod that was assigned when the transaction began from its node."""
        self._move(assignment, row, -1)

    def put_back(self, assignment: Assignment, row: int) -> None:
        """Puts a removed pod back, whatever steps came after its removal."""
        self._move(assignment, row, +1)

    def overlay(self, rows: Sequence[int], deltas: Mapping[str, Sequence[int]]) -> None:
        """Evaluates nodes with other capacity from now on: as if their allocatable amounts had changed so.

        NUMA zones and CPUs are reported apart from allocatable, and stay as they are.

        Args:
            rows: distinct ones.
            deltas: resource, or `pods` -> for each row the amount to add, negative to take away. No amount falls below
                0. What is used beyond the new amount stays used.

        Raises:
            UnknownResource: no node and no pod had the resource when the transaction began.
        """
        if unknown := [name for name in deltas if name != "pods" and self.snapshot.column(name) < 0]:
            raise UnknownResource(unknown)
        which, first = np.array(rows, np.int64), len(self.changes.entries)
        added = {name: np.array(sizes, np.int64) for name, sizes in deltas.items()}
        self._journal.append(Overlay(which, self.snapshot.add_capacity(which, added), first))
        for state in self._keeping:
            state.overlay(which, added)
        self.changes.entries += [RowChange(row, None, predicted=False, releases=True) for row in rows]

    def prepare(self, plugin: Plugin, pod_class: PodClass, row: int) -> Preparation | None:
        """Requests by a plugin what a pod needs before it can be bound to the node; None where nothing is missing."""
        state = self.plugin_states[plugin]
        preparation = state.prepare(pod_class, row)
        if preparation is not None:
            self._journal.append(Prepared(state, preparation))
        return preparation

    def placed(self) -> Iterator[tuple[PodRecord, PodClass]]:
        """Yields the pods that the steps have placed, each with its class."""
        for step in self._journal:
            if isinstance(step, Placement):
                for pod in step.pods:
                    yield pod, step.pod_class

    # undo

    def mark(self) -> Mark:
        """Returns the present point of the transaction."""
        return Mark(len(self._journal))

    def undo(self, mark: Mark) -> None:
        """Undoes all steps behind the mark, the last one first."""
        journal = self._journal
        if len(journal) > mark:
            self.changes.undone += 1
        while len(journal) > mark:
            step = journal.pop()
            if isinstance(step, Placement):
                self._undo_placement(step)
                self.changes.undo(step.first, len(step.rows))
            elif isinstance(step, Move):
                self._undo_move(step)
                self.changes.undo(step.first, 1)
            elif isinstance(step, HoldUse):
                self.snapshot.holds.restore(step.uid, step.before)
            elif isinstance(step, Overlay):
                for state in self._keeping:
                    state.undo_overlay()
                self.snapshot.restore_capacity(step.rows, step.before)
                self.changes.undo(step.first, len(step.rows))
            else:
                step.state.undo_prepare(step.preparation)
                self.changes.resets += 1
                self._active.clear()  # plugins that reject no node for a class are left out of its active ones

    def _use_hold(self, allocation: Mapping[str, str] | None, pod_class: PodClass, row: int, sign: int) -> None:
        """Counts one more pod that uses a Reservation (+1), or one less (-1): its reserve pod counts with what is left.

        A lifted Reservation stays lifted while another pod may use it.
        """
        holds, uid = self.snapshot.holds, used_reservation(allocation)
        if not uid or uid not in holds.table.capacities or uid not in holds.table.assigned:
            return
        if self.snapshot.table.rows.get(holds.table.assigned[uid].node) != row:
            return
        is_lifted = uid in holds.lifted
        if not is_lifted:
            self._move(holds.assignment(uid), row, -1, uid)
        self._journal.append(HoldUse(uid, holds.change(uid, pod_class, allocation or {}, sign)))
        if not is_lifted or not holds.is_open(holds.table.capacities[uid]):
            self._move(holds.assignment(uid), row, +1, uid)

    def _move(self, assignment: Assignment, row: int, sign: int, hold: str = "") -> None:
        pod_class, first = assignment.pod_class, len(self.changes.entries)
        self._journal.append(Move(assignment, row, sign, first, hold))
        if hold:
            self.snapshot.holds.lift(hold, row, sign)
        self.snapshot.move(pod_class, row, sign, terminating=assignment.terminating)
        for state in self._removing_of(pod_class):
            state.move(pod_class, row, terminating=assignment.terminating, sign=sign)
        for state in self._reserving.values():
            state.release(assignment, row, sign)
        self.changes.entries.append(RowChange(row, pod_class, predicted=False, releases=sign < 0))
        if not hold and assignment.allocation:
            self._use_hold(assignment.allocation, pod_class, row, sign)

    def _undo_placement(self, step: Placement) -> None:
        pod_class, allocation = step.pod_class, step.allocation
        for pod, row in zip(reversed(step.pods), reversed(step.rows), strict=True):
            if allocation:
                for state in self._reserving.values():
                    state.undo_assume(pod, pod_class, row, allocation)
            for state in self._counting_of(pod_class):
                state.undo_place(pod, pod_class, row)
            self.snapshot.undo_place(pod_class, row)

    def _undo_move(self, step: Move) -> None:
        assignment, row, pod_class = step.assignment, step.row, step.assignment.pod_class
        if step.hold:
            self.snapshot.holds.lift(step.hold, row, -step.sign)
        for state in self._reserving.values():
            state.release(assignment, row, -step.sign)
        for state in self._removing_of(pod_class):
            state.undo_move(pod_class, row, terminating=assignment.terminating, sign=step.sign)
        self.snapshot.undo_move(pod_class, row, step.sign)

    def _counting_of(self, pod_class: PodClass) -> list[PluginCycleState]:
        """Returns the plugin states that count placed pods of the class."""
        counting = self._counting.get(pod_class)
        if counting is None:
            counting = self._counting[pod_class] = [state for state in self._all_counting if state.counts(pod_class)]
        return counting

    def _removing_of(self, pod_class: PodClass) -> list[PluginCycleState]:
        """Returns the plugin states that count removed pods of the class."""
        removing = self._removing.get(pod_class)
        if removing is None:
            removing = self._removing[pod_class] = [state for state in self._all_removing if state.counts(pod_class)]
        return removing

    # reservations below the node

    def reserve(self, evaluation: ClassEvaluation, row: int) -> dict[str, str] | None:
        """Returns the allocation of a pod on a feasible node, as annotations: CPUs, NUMA zones, devices.

        None when a plugin cannot reserve its resources; the evaluation then has the node as rejected.
        """
        annotations: dict[str, str] = {}
        if evaluation.reserves:
            self._draw(evaluation.profile, evaluation.pod_class, row)
        for plugin, state in self._reserving.items() if evaluation.reserves else ():
            if plugin not in evaluation.profile.filters:
                continue
            allocation = state.reserve(evaluation.pod_class, row)
            if isinstance(allocation, int):
                evaluation.refuse(row, plugin, allocation)
                return None
            annotations.update(allocation)
        return annotations

    def _draw(self, profile: Profile, pod_class: PodClass, row: int) -> None:
        """Notes the Reservation of a node that a pod which is about to be placed there uses, for all plugins."""
        found = [state.drawn(pod_class, row) for state in self._lifting_of(profile)]
        self.snapshot.holds.drawn = found[0] if found else NOTHING_DRAWN

    def nominate(
        self, pod: PodRecord, pod_class: PodClass, profile: Profile, row: int, leaving: Sequence[Assignment]
    ) -> dict[str, str]:
        """Counts a pod on the node that it is nominated for.

        Returns:
            Its allocation there: of free resources, else of those that `leaving` releases. The allocation of a plugin
            that has too few resources even then is left out.
        """
        annotations: dict[str, str] = {}
        self.focus(profile, pod_class)
        self._draw(profile, pod_class, row)
        for plugin, state in self._reserving.items():
            allocation = state.reserve(pod_class, row) if plugin in profile.filters else {}
            if isinstance(allocation, int):
                mark = self.mark()
                for assignment in leaving:
                    self.remove(assignment, row)
                allocation = state.reserve(pod_class, row)
                self.undo(mark)
            if not isinstance(allocation, int):
                annotations.update(allocation)
        self.place(pod, pod_class, row, annotations, predictable=False)
        return annotations
