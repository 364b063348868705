"""The choice of victims on a node within a cycle, by trying nodes without some of their pods.

Victims are evicted through the eviction intent, which honours disruption budgets; the pod is nominated for the node and
placed once they have terminated. Until then the released capacity is kept from pods of the same and of lower priority.

Source: spec/scheduler-core.md 1.8, 2.7.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from services.scheduler.cache.disruption_budgets import Victim, overdrawn
from services.scheduler.framework.gang_members_as_victims import GangVictims, Lot
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination, victim_of
from services.scheduler.framework.post_filter import PostFilter, PostFilterCycle, RefusedByNodes
from services.scheduler.framework.victim_selection import Candidate, by_importance, choose_victims, pick
from services.scheduler.kernels.merge_and_select_nodes import standings
from services.scheduler.plugins.default_preemption.args import PreemptionArgs
from services.scheduler.plugins.default_preemption.preemptor_quota import PreemptorQuota
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from services.scheduler.state.quota_headroom import Entry
from shared.domain.amounts import Amounts, mask, sub

MAX_PREEMPTORS = 8
"""Maximum number of pods per cycle for which victims are sought: it must not block the service. Others follow at their
next attempt.
"""

_HIGHEST = 1 << 62


class NodePreemption(PostFilter):
    """Selects victims on nodes for the refused pods of a cycle."""

    def __init__(self, args: PreemptionArgs, cycle: PostFilterCycle) -> None:
        self._args = args
        self._cache = cycle.cache
        self._placed = cycle.placed
        self._cycle = cycle.preemptions
        has_gangs = bool(cycle.cache.view.gangs.gang_of)
        self._gangs = GangVictims(cycle.cache, cycle.preemptions) if has_gangs else None
        self._lowest: int | None = None  # lowest priority of all assigned pods
        self._unresolvable: set[PodClass] = set()  # classes for which no eviction helps

    def after_filters(self, refused: RefusedByNodes) -> Nomination | None:
        """Returns a node and the pods to evict from it; None without one, or when the pod may not or need not
        preempt.
        """
        pod, pod_class = refused.pod, refused.pod_class
        if pod_class in self._unresolvable or pod_class.pod.spec.preemption_policy == "Never":
            return None
        if self._cycle.searches >= MAX_PREEMPTORS or self._waits_for_victims(pod, pod_class):
            return None
        if self._lowest is None:
            self._lowest = min(
                (pod_class.priority for pod_class, _ in self._cache.pod_index.classes()), default=_HIGHEST
            )
        if self._lowest < pod_class.priority:
            self._cycle.searches += 1
            for own in self._own(pod, pod_class):
                candidates = list(self._candidates(refused, own))
                if (found := pick(candidates)) is not None:
                    return Nomination(pod, pod_class, found, len(candidates))
        if not self._cycle.node_of(pod):
            self._unresolvable.add(pod_class)
        return None

    def waits_for_node(self, pod: PodRecord, pod_class: PodClass) -> bool:
        """See `PostFilter`."""
        return self._cycle.searches >= MAX_PREEMPTORS or self._waits_for_victims(pod, pod_class)

    def _own(self, pod: PodRecord, pod_class: PodClass) -> Iterator[PreemptorQuota | None]:
        """Yields the restrictions of the search: to the pod's own quota, if it has one; then none (None).

        The second is left out when the quota lacks capacity: the eviction of pods of other quotas would not help.
        """
        quota = self._cache.view.quota
        entry = quota.entry_of(pod.uid, pod_class.namespace, pod_class.labels, pod_class.request)
        if entry is None:
            yield None
        elif (short := self._short_of(entry, pod_class.priority)) is not None:
            yield PreemptorQuota(quota, entry.quota, short)
            if not short:
                yield None

    def _short_of(self, entry: Entry, priority: int) -> Amounts | None:
        """Returns resource -> amount that a pod's quota lacks for it; None where no preemptible pod can release it.

        Pods that the cycle placed or nominated before count as charged, and pods of the quota that are evicted for them
        as terminated.
        """
        quota = self._cache.view.quota
        charged: dict[str, Amounts] = {}
        np_charged: dict[str, Amounts] = {}
        for pod, pod_class in self._placed():
            other = quota.entry_of(pod.uid, pod_class.namespace, pod_class.labels, pod_class.request)
            if other is not None and not other.charged:
                quota.take(other, charged, np_charged)
        short = quota.shortage(entry, charged, np_charged)
        if not short:
            return short
        for pod_record in self._cycle.evicted_pods():
            gone = quota.pods.get(pod_record.uid)
            if (
                gone is not None
                and gone.quota == entry.quota
                and gone.charged
                and victim_of(pod_record).priority < priority
            ):
                short = sub(short, mask(gone.request, short))
        return {name: size for name, size in short.items() if size > 0}

    def _waits_for_victims(self, pod: PodRecord, pod_class: PodClass) -> bool:
        """Returns True while a pod of lower priority terminates on the node that the pod is nominated for."""
        node = self._cycle.node_of(pod)
        row = self._cache.table.rows.get(node) if node else None
        return row is not None and bool(self._cycle.leaving_from(row, pod_class.priority))

    def _candidates(self, refused: RefusedByNodes, own: PreemptorQuota | None) -> Iterator[Candidate]:
        cache, pod_class = self._cache, refused.pod_class
        rows = refused.resolvable()
        if not len(rows):
            return
        enough = self._args.candidates(len(rows))
        found = clean = 0
        # Each pod starts from another node. The order depends on names: rows differ from process to process.
        for row in rows[np.argsort(standings(cache.table.hashes[rows], refused.pod_hash), kind="stable")]:
            potential: dict[str, Assignment] = {}
            leaving: list[Assignment] = []
            for uid, assignment in cache.on.get(int(row), {}).items():
                if assignment.pod_class.priority >= pod_class.priority or assignment.pod_class.holds_capacity:
                    continue
                if self._cycle.is_evicted(uid):
                    leaving.append(assignment)
                elif own is None or own.holds(uid):
                    potential[uid] = assignment
            candidate = self._best_of(refused, int(row), potential, leaving, own) if potential or leaving else None
            if candidate is None:
                continue
            yield candidate
            found += 1
            clean += not candidate.violations
            if clean and found >= enough:
                return

    def _best_of(
        self,
        refused: RefusedByNodes,
        row: int,
        potential: Mapping[str, Assignment],
        leaving: Sequence[Assignment],
        own: PreemptorQuota | None,
    ) -> Candidate | None:
        """Returns the victims of a node that end no gang, else those that do."""
        if self._gangs is None:
            return self._candidate(refused, row, potential, leaving, own)
        for lots in self._gangs.options(potential, refused.pod.uid, refused.pod_class.priority):
            candidate = self._candidate(refused, row, potential, leaving, own, lots)
            if candidate is not None:
                return candidate
        return None

    def _candidate(
        self,
        refused: RefusedByNodes,
        row: int,
        potential: Mapping[str, Assignment],
        leaving: Sequence[Assignment],
        own: PreemptorQuota | None,
        given_lots: Sequence[Lot] | None = None,
    ) -> Candidate | None:
        """Returns the fewest pods of a node to evict besides the terminating ones; no victims where these alone release
        enough.

        The released capacity counts for this pod only beyond what nominated pods need: they are counted on the node.

        Args:
            given_lots: pods that are evicted together; None for potential victims that are evicted one by one.
        """
        steps, view, budgets = refused.steps, self._cache.view, self._cycle.budgets
        lots = [Lot((victim_of(view.pods[uid]),)) for uid in potential] if given_lots is None else given_lots
        lot_of = {lot.pods[0].uid: lot for lot in lots}
        gone: set[str] = set()

        def remove(victim: Victim) -> None:
            for each in lot_of[victim.uid].pods:
                steps.remove(potential[each.uid], row)
                gone.add(each.uid)

        def put_back(victim: Victim) -> None:
            for each in lot_of[victim.uid].pods:
                steps.put_back(potential[each.uid], row)
                gone.discard(each.uid)

        mark = steps.mark()
        for assignment in leaving:
            steps.remove(assignment, row)
        firsts = [lot.pods[0] for lot in lots]
        chosen = choose_victims(
            firsts,
            budgets,
            remove=remove,
            put_back=put_back,
            fits=lambda: (own is None or own.fits_without(gone)) and refused.fits(row),
        )
        steps.undo(mark)
        if chosen is None or not (chosen[0] or leaving):
            return None
        node, violations = self._cache.table.names[row], chosen[1]
        victims = [each for first in chosen[0] for lot in (lot_of[first.uid],) for each in (*lot.pods, *lot.others)]
        beyond = overdrawn(by_importance(firsts), budgets) if violations else {}
        if len(victims) > len(chosen[0]):
            victims = by_importance(victims)
            beyond = overdrawn(victims, budgets)
            violations = len(beyond)
        names = sorted({name for victim in victims for name in beyond.get(victim.uid, ())})
        return Candidate(node, tuple(victims), violations, tuple(names))
