"""Preemption for a gang: the fewest pods of lower priority whose eviction lets all pods fit that the gang needs.

Everything is tried in the cycle's transaction: the victims leave, the pods are placed, and all of it is undone. Each
pod is then nominated for its node, and the victims of a node are evicted for the first pod that is nominated there.
With a required layer of the network, all pods are nominated in the domain with the least loss.

Source: spec/scheduler-workloads.md 4.4; upstream pkg/scheduler/plugins/coscheduling/core/preemption.go.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from services.scheduler.cache.disruption_budgets import overdrawn
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.network_domain_choice import wish_of
from services.scheduler.cycle.network_domain_placement import NetworkDomainPlacement, in_order, needed_uids
from services.scheduler.cycle.pod_placement import PodPlacement
from services.scheduler.cycle.quota_of_gang import QuotaOfGang
from services.scheduler.cycle.victims_for_gang import VictimSearch, VictimsOfGang
from services.scheduler.framework.gang_grouping_interface import Gathering, Requirement
from services.scheduler.framework.gang_members_as_victims import GangVictims
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination, victim_of
from services.scheduler.framework.victim_selection import Candidate, by_importance
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.queue.units import Unit, class_of
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from shared.kube.elastic_quota import PREEMPTIBLE

MAX_GANGS = 2
"""Maximum number of gangs of a cycle for which victims are sought: it must not block the service."""

MAX_NODES = 2000
"""Maximum number of nodes whose pods are considered in one attempt, in the order of their names; the next attempt of the
gang begins so many nodes later.
"""

DISABLED = "scheduling.koordinator.sh/disable-preemptible"
"""Label of pods that are never evicted for others by `"true"`."""


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
        quota = QuotaOfGang(
            self._cache.view.quota,
            ((pod, class_of(pod)) for pod in needed),
            self._pods.transaction.placed(),
            [pod.uid for pod in self._pods.preemptions.evicted_pods()],
        )
        if quota.is_unresolvable:
            return ()
        for each in self._potential(needed[0], priority):
            potential = {uid: at for uid, at in each.items() if quota.holds(uid)} if quota.is_short else each
            found = self._least(needed, potential, priority, gathering)
            if found is not None and quota.fits_without([uid for uids in found.victims.values() for uid in uids]):
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
        first = pod.attempts * MAX_NODES % len(rows) if len(rows) > MAX_NODES else 0
        taken = 0
        for row in (*rows[first:], *rows[:first]):
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
    ) -> VictimsOfGang | None:
        """Returns the choice with the least loss over the domains that may hold the pods."""
        search = VictimSearch(self._pods, self._cache, pods, potential, priority)
        best: VictimsOfGang | None = None
        for rows in self._domains(gathering):
            best = search.within(rows, None if best is None else best.loss) or best
        return best

    def _domains(self, gathering: Gathering | None) -> Sequence[Int64 | None]:
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
        numbers = np.argsort(domains.ranks[wish.must]).tolist() if home is None else [home]
        nodes = (domains.nodes_in(wish.must, number) for number in numbers)
        return [domains.rows[each.start : each.stop] for each in nodes]

    # the result

    def _nominated(self, pods: Sequence[PodRecord], found: VictimsOfGang) -> list[Nomination]:
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


def _is_preemptible(assignment: Assignment, priority: int) -> bool:
    pod_class = assignment.pod_class
    return (
        pod_class.priority < priority
        and not pod_class.holds_capacity
        and not assignment.terminating
        and pod_class.labels.get(DISABLED) != "true"
        and pod_class.labels.get(PREEMPTIBLE) != "false"
    )
