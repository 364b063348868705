"""Preemption for a gang: the fewest pods of lower priority whose eviction lets all pods fit that the gang needs.

Everything is tried in the cycle's transaction: the victims leave, the pods are placed, and all of it is undone. Each
pod is then nominated for its node, and the victims of a node are evicted for the first pod that is nominated there.
With a required layer of the network, all pods are nominated in the domain with the least loss.

Source: spec/scheduler-workloads.md 4.4; upstream pkg/scheduler/plugins/coscheduling/core/preemption.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.disruption_budgets import overdrawn
from services.scheduler.cycle.cluster_cache_with_queue import CycleInputs
from services.scheduler.cycle.fewest_victims_for_gang import (
    NodeOptions,
    Option,
    PotentialVictim,
    least_loss,
    options_of,
    slots_of,
)
from services.scheduler.cycle.network_domain_choice import wish_of
from services.scheduler.cycle.network_domain_placement import NetworkDomainPlacement, in_order, needed_uids
from services.scheduler.cycle.pod_placement import PodPlacement
from services.scheduler.framework.gang_grouping_interface import Gathering, Requirement
from services.scheduler.framework.gang_members_as_victims import GangVictims
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination, victim_of
from services.scheduler.framework.victim_selection import Candidate, by_importance
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.queue.units import Unit, class_of
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.kube.elastic_quota import PREEMPTIBLE

MAX_GANGS = 2
"""Maximum number of gangs of a cycle for which victims are sought: it must not block the service."""

MAX_NODES = 2000
"""Maximum number of nodes whose pods are considered, in the order of their names."""

MAX_TRIES = 8
"""Maximum number of choices that are tried in a domain: a node that rejects a pod in spite of its capacity is left out
of the next one.
"""

MAX_DOMAINS = 32

DISABLED = "scheduling.koordinator.sh/disable-preemptible"
"""Label of pods that are never evicted for others by `"true"`."""

JOB = "scheduling.koordinator.sh/questioned-object-key"
"""Label of the job of a pod."""


class _Found(NamedTuple):
    """A choice that admits all pods.

    Attributes:
        rows: of each pod, in their order.
        victims: row -> uids of the pods to evict there.
    """

    loss: int
    rows: tuple[int, ...]
    victims: Mapping[int, tuple[str, ...]]


class GangPreemption:
    """The search for victims for the gangs of one cycle."""

    def __init__(self, pods: PodPlacement, cache: CycleInputs, in_domains: NetworkDomainPlacement) -> None:
        self._pods = pods
        self._cache = cache
        self._in_domains = in_domains
        self._gangs = 0  # so far

    def nominations(self, unit: Unit, requirement: Requirement, gathering: Gathering | None) -> Sequence[Nomination]:
        """Returns a nomination for each pod that an unplaced unit needs, counted in the cycle; none where no eviction
        helps, or where pods that are evicted for it still run.
        """
        pods = in_order(unit.pods, gathering)
        uids = needed_uids(pods, requirement)
        needed = [pod for pod in pods if pod.uid in uids]
        if not needed or any(pod.pod_class is None or pod.pod_class.fault for pod in needed):
            return ()
        if any(class_of(pod).pod.spec.preemption_policy == "Never" for pod in unit.pods if pod.pod_class):
            return ()
        priority = min(class_of(pod).priority for pod in needed)
        if self._gangs >= MAX_GANGS or self._waits(needed, priority):
            return ()
        self._gangs += 1
        # Equal pods are placed one after the other, each class at once.
        first = {class_: number for number, class_ in reversed(list(enumerate(map(class_of, needed))))}
        needed.sort(key=lambda pod: first[class_of(pod)])
        for potential in self._potential(needed[0], priority):
            found = self._least(needed, potential, priority, gathering)
            if found is not None:
                return self._nominated(needed, found)
        return ()

    def count_nominated(self, pods: Iterable[PodRecord]) -> None:
        """Counts the pods on the nodes that they are nominated for; others get no capacity there."""
        for pod in pods:
            if pod.pod_class is not None and (node := self._pods.preemptions.node_of(pod)):
                self._pods.count_nominated(pod, pod.pod_class, node)

    def _waits(self, pods: Iterable[PodRecord], priority: int) -> bool:
        """Returns True while pods of lower priority terminate on a node that one of the pods is nominated for."""
        rows = self._cache.table.rows
        nodes = {self._pods.preemptions.node_of(pod) for pod in pods}
        return any(node in rows and self._pods.preemptions.leaving_from(rows[node], priority) for node in nodes)

    # victims

    def _potential(self, pod: PodRecord, priority: int) -> Iterable[Mapping[str, tuple[int, Assignment]]]:
        """Yields the pods that may be evicted, uid -> (row, assignment): those whose eviction ends no gang first."""
        there: dict[str, tuple[int, Assignment]] = {}
        rows = sorted(self._cache.on, key=self._cache.table.names.__getitem__)
        taken = 0
        for row in rows:
            if taken == MAX_NODES:
                break
            found = [
                (uid, assignment)
                for uid, assignment in self._cache.on[row].items()
                if _is_preemptible(assignment, priority) and not self._pods.preemptions.is_evicted(uid)
            ]
            taken += bool(found)
            there.update((uid, (row, assignment)) for uid, assignment in found)
        if not self._cache.view.gangs.gang_of:
            yield there
            return
        for lots in GangVictims(self._cache, self._pods.preemptions).options(there, pod.uid, priority):
            yield {victim.uid: there[victim.uid] for lot in lots for victim in lot.pods}

    def _least(
        self,
        pods: Sequence[PodRecord],
        potential: Mapping[str, tuple[int, Assignment]],
        priority: int,
        gathering: Gathering | None,
    ) -> _Found | None:
        """Returns the choice with the least loss over the domains that may hold the pods."""
        by_row: dict[int, list[str]] = {}
        for uid, (row, _) in potential.items():
            by_row.setdefault(row, []).append(uid)
        ranks = {each: rank for rank, each in enumerate(sorted({a.pod_class.priority for _, a in potential.values()}))}
        best: _Found | None = None
        for rows in self._domains(gathering):
            found = self._tried(pods, by_row, potential, ranks, priority, rows)
            if found is not None and (best is None or found.loss < best.loss):
                best = found
        return best

    def _domains(self, gathering: Gathering | None) -> Sequence[frozenset[int] | None]:
        """Returns the rows of each domain in which all pods have to be; None for any row."""
        if gathering is None:
            return (None,)
        domains = self._cache.cluster_objects.network.domains(self._cache.table)
        wish = None if domains is None else wish_of(gathering.spec, domains)
        if domains is None or wish is None or isinstance(wish, str) or any(each > 1 for each in wish.multiples):
            return ()
        if not wish.must:
            return (None,)
        home = self._in_domains.home(domains, wish, gathering)
        numbers = sorted(range(domains.count(wish.must)), key=domains.ranks[wish.must].__getitem__)[:MAX_DOMAINS]
        return [
            frozenset(domains.rows[list(domains.nodes_in(wish.must, number))].tolist())
            for number in (numbers if home is None else (home,))
        ]

    # trying

    def _tried(
        self,
        pods: Sequence[PodRecord],
        by_row: Mapping[int, Sequence[str]],
        potential: Mapping[str, tuple[int, Assignment]],
        ranks: Mapping[int, int],
        priority: int,
        rows: frozenset[int] | None,
    ) -> _Found | None:
        """Places the pods without some of the others, and undoes it."""
        closed: set[int] = set()
        for _ in range(MAX_TRIES):
            mark = self._pods.transaction.mark()
            placed: list[int] = []
            victims: dict[int, tuple[str, ...]] = {}
            loss = 0
            rejecting = None
            for pod_class, run in groupby(pods, class_of):
                members = list(run)
                allowed = _Allowed(rows, frozenset(closed))
                chosen = self._options(pod_class, len(members), by_row, potential, victims, ranks, priority, allowed)
                if chosen is None:
                    rejecting = -1
                    break
                loss += chosen[0]
                for row, option in chosen[1].items():
                    for leaving in self._pods.preemptions.leaving_from(row, priority) if row not in victims else ():
                        self._pods.transaction.remove(leaving, row)
                    victims[row] = (*victims.get(row, ()), *option.victims)
                    for uid in option.victims:
                        self._pods.transaction.remove(potential[uid][1], row)
                rejecting = self._place(members, pod_class, chosen[1], chosen[2], placed)
                if rejecting is not None:
                    break
            self._pods.transaction.undo(mark)
            if rejecting is None:
                return _Found(loss, tuple(placed), victims)
            if rejecting < 0:
                return None
            closed.add(rejecting)
        return None

    def _options(
        self,
        pod_class: PodClass,
        count: int,
        by_row: Mapping[int, Sequence[str]],
        potential: Mapping[str, tuple[int, Assignment]],
        victims: Mapping[int, tuple[str, ...]],
        ranks: Mapping[int, int],
        priority: int,
        allowed: "_Allowed",
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
        feasible = allowed.among(np.flatnonzero(evaluation.by == FEASIBLE))
        now = {row: slots for row in feasible if (slots := slots_of(self._free(row, amounts), amounts.sizes))}
        missing = count - sum(now.values())
        if missing <= 0:
            return 0, {}, now
        offers: list[NodeOptions] = []
        for row in allowed.among([*feasible, *evaluation.resolvable().tolist()]):
            left = [uid for uid in by_row.get(row, ()) if uid not in victims.get(row, ())]
            gone = self._pods.preemptions.leaving_from(row, priority) if row not in victims else ()
            if not left and not gone:
                continue
            free = self._free(row, amounts) + sum(
                (self._of(each, amounts) for each in gone), np.zeros_like(amounts.sizes)
            )
            there = [self._potential_victim(uid, potential[uid][1], ranks, amounts) for uid in self._ordered(left)]
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

    def _potential_victim(
        self, uid: str, assignment: Assignment, ranks: Mapping[int, int], amounts: "_Amounts"
    ) -> PotentialVictim:
        pod_class = assignment.pod_class
        return PotentialVictim(
            uid, self._of(assignment, amounts), ranks[pod_class.priority], pod_class.labels.get(JOB, "")
        )

    def _ordered(self, uids: Iterable[str]) -> list[str]:
        """Returns pods with the most important first."""
        return [each.uid for each in by_importance(victim_of(self._cache.view.pods[uid]) for uid in uids)]

    # the result

    def _nominated(self, pods: Sequence[PodRecord], found: _Found) -> list[Nomination]:
        names, view = self._cache.table.names, self._cache.view
        of_row = {row: [victim_of(view.pods[uid]) for uid in uids] for row, uids in found.victims.items()}
        chosen = {uid for uids in found.victims.values() for uid in uids}
        others = GangVictims(self._cache, self._pods.preemptions).rest_of(chosen)
        made: list[Nomination] = []
        for pod, row in zip(pods, found.rows, strict=True):
            victims = by_importance([*of_row.pop(row, ()), *others])
            others = []
            beyond = overdrawn(victims, self._pods.preemptions.budgets)
            budgets = tuple(sorted({name for each in beyond.values() for name in each}))
            candidate = Candidate(names[row], tuple(victims), len(beyond), budgets)
            made.append(self._pods.preemptions.nominate(Nomination(pod, class_of(pod), candidate, len(found.victims))))
        return made


class _Amounts(NamedTuple):
    """The resources that a class requests: columns of the node table, and the amounts, the last one for the pod itself."""

    columns: Sequence[int]
    sizes: Int64


class _Allowed(NamedTuple):
    """The rows that may be used: those of a domain, without closed ones."""

    rows: frozenset[int] | None
    closed: frozenset[int]

    def among(self, rows: Iterable[int] | NDArray[np.intp]) -> list[int]:
        """Returns those of some rows that may be used."""
        return [
            int(row)
            for row in dict.fromkeys(int(each) for each in rows)
            if row not in self.closed and (self.rows is None or row in self.rows)
        ]


def _is_preemptible(assignment: Assignment, priority: int) -> bool:
    pod_class = assignment.pod_class
    return (
        pod_class.priority < priority
        and not pod_class.holds_capacity
        and not assignment.terminating
        and pod_class.labels.get(DISABLED) != "true"
        and pod_class.labels.get(PREEMPTIBLE) != "false"
    )
