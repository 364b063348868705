"""The search for the victims of a gang within one domain of the network, or on any node.

The pods are placed class by class in the cycle's transaction, without the victims that make capacity for them, and all
of it is undone. A node that rejects a pod in spite of its capacity is left out of the next choice.

Source: spec/scheduler-workloads.md 4.4; upstream pkg/scheduler/plugins/coscheduling/core/preemption.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.fewest_victims_for_gang import (
    NodeOptions,
    Option,
    PotentialVictim,
    least_loss,
    options_of,
    slots_of,
)
from services.scheduler.cycle.pod_placement import PodPlacement
from services.scheduler.framework.nominations_and_victims_of_cycle import victim_of
from services.scheduler.framework.victim_selection import by_importance
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.queue.units import class_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord

MAX_TRIES = 8
"""Maximum number of choices that are tried in a domain."""

JOB = "scheduling.koordinator.sh/questioned-object-key"
"""Label of the job of a pod."""


class VictimsOfGang(NamedTuple):
    """A choice that admits all pods.

    Attributes:
        rows: of each pod, in their order.
        victims: row -> uids of the pods to evict there.
    """

    loss: int
    rows: tuple[int, ...]
    victims: Mapping[int, tuple[str, ...]]


class VictimSearch:
    """The search for the victims of one gang, of which one domain after the other is tried."""

    def __init__(
        self,
        pods: PodPlacement,
        cache: CycleInputs,
        gang: Sequence[PodRecord],
        potential: Mapping[str, tuple[int, Assignment]],
        priority: int,
    ) -> None:
        """Takes what is the same in all domains.

        Args:
            gang: the pods to place, those of a class one after the other.
            potential: uid -> row and assignment of the pods that may be evicted.
            priority: of the gang.
        """
        self._pods = pods
        self._cache = cache
        self._gang = gang
        self._potential = potential
        self._priority = priority
        priorities = sorted({assignment.pod_class.priority for _, assignment in potential.values()})
        self._ranks = {each: rank for rank, each in enumerate(priorities)}
        self._by_row: dict[int, list[str]] = {}
        for uid, (row, _) in potential.items():
            self._by_row.setdefault(row, []).append(uid)

    def within(self, rows: Int64 | None, below: int | None) -> VictimsOfGang | None:
        """Returns a choice that admits all pods.

        Args:
            rows: the only ones that may be used; None for all.
            below: the loss that the choice has to stay below, if any.
        """
        allowed = np.full(self._pods.transaction.snapshot.size, rows is None)
        if rows is not None:
            allowed[rows] = True
        for _ in range(MAX_TRIES):
            mark = self._pods.transaction.mark()
            found = self._tried(allowed, below)
            self._pods.transaction.undo(mark)
            if not isinstance(found, int):
                return found
            allowed[found] = False
        return None

    def _tried(self, allowed: Bools, below: int | None) -> VictimsOfGang | int | None:
        """Places the pods without some of the others.

        Args:
            allowed: [rows].

        Returns:
            The choice; the row that rejects a pod in spite of its capacity; None where the eviction of all others would
            not help, or loses too much.
        """
        placed: list[int] = []
        victims: dict[int, tuple[str, ...]] = {}
        loss = 0
        for pod_class, run in groupby(self._gang, class_of):
            members = list(run)
            chosen = self._options(pod_class, len(members), victims, allowed)
            if chosen is None:
                return None
            loss += chosen[0]
            if below is not None and loss >= below:
                return None
            self._remove(chosen[1], victims)
            rejecting = self._place(members, pod_class, chosen[1], chosen[2], placed)
            if rejecting is not None:
                return rejecting
        return VictimsOfGang(loss, tuple(placed), victims)

    def _remove(self, chosen: Mapping[int, Option], victims: dict[int, tuple[str, ...]]) -> None:
        """Removes the victims of a choice, and adds them to those of the classes before."""
        transaction = self._pods.transaction
        for row, option in chosen.items():
            for leaving in self._leaving(row, victims):
                transaction.remove(leaving, row)
            victims[row] = (*victims.get(row, ()), *option.victims)
            for uid in option.victims:
                transaction.remove(self._potential[uid][1], row)

    def _leaving(self, row: int, victims: Mapping[int, tuple[str, ...]]) -> Sequence[Assignment]:
        """Returns the pods that leave a node anyway, where they count there still."""
        return self._pods.preemptions.leaving_from(row, self._priority) if row not in victims else ()

    def _options(
        self,
        pod_class: PodClass,
        count: int,
        victims: Mapping[int, tuple[str, ...]],
        allowed: Bools,
    ) -> tuple[int, Mapping[int, Option], Mapping[int, int]] | None:
        """Returns the loss, row -> option, and row -> pods that fit without victims; None where all would not help."""
        transaction = self._pods.transaction
        profile = self._pods.profile(pod_class)
        transaction.focus(profile, pod_class)
        evaluation = transaction.evaluation(profile, pod_class)
        term = transaction.active(profile).of(pod_class).fit_term(pod_class)
        if term is None:
            return None
        columns = [column for column in term[1].resources.tolist() if column < transaction.snapshot.requested.shape[1]]
        if len(columns) < len(term[1].resources):
            return None  # no node has one of the resources
        amounts = _Amounts(columns, np.append(term[1].sizes, 1))
        feasible = np.flatnonzero((evaluation.by == FEASIBLE) & allowed).tolist()
        resolvable = evaluation.resolvable()
        now = {row: slots for row in feasible if (slots := slots_of(self._free(row, amounts), amounts.sizes))}
        missing = count - sum(now.values())
        if missing <= 0:
            return 0, {}, now
        offers: list[NodeOptions] = []
        for row in dict.fromkeys([*feasible, *resolvable[allowed[resolvable]].tolist()]):
            left = [uid for uid in self._by_row.get(row, ()) if uid not in victims.get(row, ())]
            gone = self._leaving(row, victims)
            if not left and not gone:
                continue
            free = self._free(row, amounts) + sum(
                (self._of(each, amounts) for each in gone), np.zeros_like(amounts.sizes)
            )
            there = [self._potential_victim(uid, amounts) for uid in self._ordered(left)]
            options = options_of(free, amounts.sizes, there, now.get(row, 0), missing)
            if options:
                offers.append(NodeOptions(row, options))
        names = self._cache.table.names
        found = least_loss(sorted(offers, key=lambda each: names[each.row]), missing)
        return None if found is None else (*found, now)

    def _place(
        self,
        pods: Sequence[PodRecord],
        pod_class: PodClass,
        chosen: Mapping[int, Option],
        now: Mapping[int, int],
        placed: list[int],
    ) -> int | None:
        """Places pods on the nodes with victims, then on the free ones; returns the row that rejects one, if any."""
        names, profile, transaction = self._cache.table.names, self._pods.profile(pod_class), self._pods.transaction
        slots = {row: option.pods + now.get(row, 0) for row, option in chosen.items()}
        slots |= {row: most for row, most in now.items() if row not in chosen}
        line = [
            row for row in sorted(slots, key=lambda row: (row not in chosen, names[row])) for _ in range(slots[row])
        ]
        for pod, row in zip(pods, line, strict=False):
            if not transaction.fits(profile, pod_class, row):
                return row
            transaction.place(pod, pod_class, row, {}, predictable=False)
            placed.append(row)
        return None

    def _free(self, row: int, amounts: "_Amounts") -> Int64:
        snapshot = self._pods.transaction.snapshot
        free = [int(snapshot.allocatable[row, column] - snapshot.requested[row, column]) for column in amounts.columns]
        return np.array([*free, int(snapshot.allowed_pods[row] - snapshot.pods[row])], np.int64)

    def _of(self, assignment: Assignment, amounts: "_Amounts") -> Int64:
        sizes = dict(self._cache.table.vector(assignment.pod_class))
        return np.array([*(sizes.get(column, 0) for column in amounts.columns), 1], np.int64)

    def _potential_victim(self, uid: str, amounts: "_Amounts") -> PotentialVictim:
        assignment = self._potential[uid][1]
        pod_class = assignment.pod_class
        rank, job = self._ranks[pod_class.priority], pod_class.labels.get(JOB, "")
        return PotentialVictim(uid, self._of(assignment, amounts), rank, job)

    def _ordered(self, uids: Iterable[str]) -> list[str]:
        """Returns pods with the most important first."""
        return [each.uid for each in by_importance(victim_of(self._cache.view.pods[uid]) for uid in uids)]


class _Amounts(NamedTuple):
    """The resources that a class requests: columns of the node table, and the amounts, the last one for the pod itself."""

    columns: Sequence[int]
    sizes: Int64
