"""Preemption inside a quota, in cycles: for a pod that found a node but does not fit into its quota, pods of that quota
are evicted.

Only pods of the same quota, of lower priority, charged and preemptible are victims; none of the system and default
quotas are. The pod is nominated for the node that the cycle found for it, and the capacity in the quota is kept for it
until it is placed.

Source: spec/quota.md 6.3.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.cycle_preemptions import CyclePreemptions, victim_of
from services.scheduler.cycle.preemption_events import consequences, nomination
from services.scheduler.framework.victim_selection import Candidate, by_importance
from services.scheduler.quota.victims import QuotaVictim, eviction_order, select_victims
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PodRecord
from services.scheduler.state.quota_headroom import Entry
from services.scheduler.state.quota_reasons import waits_for_quota
from shared.domain.amounts import Amounts, largest, sub
from shared.domain.quota_charge import QuotaShort
from shared.events import Cause, Draft
from shared.events.scheduling import PodPlaced


class QuotaPreemptor:
    """Frees capacity in quotas and keeps it for nominated pods. Reads one cache and the State that it was made of."""

    def __init__(self, cache: CycleInputs) -> None:
        self._cache = cache

    def refused_for_nominated(self, groups: Sequence[Sequence[str]]) -> dict[str, QuotaShort]:
        """Returns the pods that would take capacity kept for a nominated pod of their own or of higher priority; groups
        as a whole.
        """
        return _NominatedCapacity(self._cache).refused_for_nominated(groups)

    def preempt(
        self, before: Sequence[Draft], after: Sequence[Draft], refused: Mapping[str, QuotaShort | None]
    ) -> Iterator[Draft]:
        """Yields the events that free capacity for pods that were refused.

        Args:
            before: the cycle as it was decided, with the node of each pod.
            after: the cycle without the placements that were refused.
        """
        cache = self._cache
        placed = {draft.event.pod_uid: draft.event for draft in before if isinstance(draft.event, PodPlaced)}
        cycle = CyclePreemptions(cache)
        cycle.follow(draft.event for draft in after)
        preemption = _QuotaPreemption(cache, cycle)
        for draft in after:
            if isinstance(draft.event, PodPlaced):
                preemption.count_charged(draft.event.pod_uid)
        # No victim frees the min of a quota that non-preemptible pods use up.
        uids = [uid for uid, short in refused.items() if short is not None and short.stage != "nonPreemptible"]
        for uid in sorted(uids, key=lambda each: -_priority(cache, each)):
            pod, short = cache.view.pods.get(uid), refused[uid]
            if pod is None or pod.pod_class is None or short is None or not _may_preempt(cache, pod.pod_class):
                continue
            if (selected := preemption.select_for(pod, pod.pod_class, short.short)) is None:
                continue
            quota, quota_victims = selected
            victims = tuple(by_importance(each.victim for each in quota_victims))
            violated = sorted({name for each in quota_victims for name in each.violates})
            violations = sum(bool(each.violates) for each in quota_victims)
            candidate = Candidate(placed[uid].node, victims, violations, tuple(violated))
            nominated = nomination(pod, candidate, placed[uid].cycle, quota=quota)
            for event in consequences(cache, cycle, pod, pod.pod_class, nominated, victims):
                yield Draft(event, Cause("cluster", pod.since), uid)


class _Nominated(NamedTuple):
    """A pod for which capacity in its quota is kept."""

    priority: int
    uid: str
    entry: Entry


class _NominatedCapacity:
    """The capacity in quotas that is kept for nominated pods."""

    def __init__(self, cache: CycleInputs) -> None:
        self._cache = cache
        self._nominated = sorted(_nominated(cache), key=lambda each: (-each.priority, each.uid))

    def refused_for_nominated(self, groups: Sequence[Sequence[str]]) -> dict[str, QuotaShort]:
        refused: dict[str, QuotaShort] = {}
        view = self._cache.view.quota
        planned: dict[str, Amounts] = {}
        np_planned: dict[str, Amounts] = {}
        for group in groups if self._nominated else ():
            short = next((found for uid in group if (found := self._shortage(uid, planned, np_planned))), None)
            for uid in group:
                if short is not None:
                    refused[uid] = short
                elif (entry := _entry(self._cache, uid)) is not None:
                    view.take(entry, planned, np_planned)
        return refused

    def _shortage(
        self, uid: str, planned: Mapping[str, Amounts], np_planned: Mapping[str, Amounts]
    ) -> QuotaShort | None:
        """The shortfall of a pod's quota besides the kept capacity; None where there is none, or the ledger will find
        it.
        """
        view, entry, priority = self._cache.view.quota, _entry(self._cache, uid), _priority(self._cache, uid)
        if entry is None:
            return None
        first = [
            each
            for each in self._nominated
            if each.priority >= priority and each.uid != uid and each.entry.quota == entry.quota
        ]
        if not first or not view.has_room(entry, planned, np_planned):
            return None
        with_kept, np_with_kept = _copied(planned), _copied(np_planned)
        for each in first:
            view.take(each.entry, with_kept, np_with_kept)
        short = view.shortage(entry, with_kept, np_with_kept)
        if short == {}:
            return None
        owner = self._cache.view.pods[first[0].uid].name
        message = (
            f"Insufficient quotas, quotaName: {entry.quota}, the capacity in it is kept for {owner} of priority"
            f" {first[0].priority}"
        )
        return QuotaShort(quota=entry.quota, stage="quota", short=short or {}, message=message)


class _QuotaPreemption:
    """Selects victims for the refused pods of one cycle, so that no two of them count on the same capacity.

    A pod that the cycle nominates for a node has the capacity that its victims free in its quota: nobody else counts on
    it.
    """

    def __init__(self, cache: CycleInputs, cycle: CyclePreemptions) -> None:
        self._cache = cache
        self._cycle = cycle
        self._budgets = cycle.budgets
        self._view = cache.view.quota
        self._planned: dict[str, Amounts] = {}
        self._np_planned: dict[str, Amounts] = {}
        self._nominated = list(_nominated(cache))
        known = {each.uid for each in self._nominated}
        for uid in cycle.nominated:
            if uid not in known and (entry := _entry(cache, uid)) is not None:
                self._nominated.append(_Nominated(_priority(cache, uid), uid, entry))
        self._ordered: dict[str, list[QuotaVictim]] = {}
        self._terminating: dict[str, dict[str, Entry]] = {}

    def count_charged(self, uid: str) -> None:
        """Counts a pod that the ledger has charged for this cycle: the followed log may not show the charge yet."""
        entry = _entry(self._cache, uid)
        if entry is not None and not entry.charged:
            self._view.take(entry, self._planned, self._np_planned)

    def select_for(
        self, pod: PodRecord, pod_class: PodClass, short: Mapping[str, int]
    ) -> tuple[str, list[QuotaVictim]] | None:
        """Returns the pod's quota and its victims; None where none is needed, or all of them would not be enough.

        Args:
            short: the shortfall in the ledger's response. It may rest on more than the followed log shows, and it
                leaves out the capacity that is kept for others: the larger of both counts.
        """
        entry = _entry(self._cache, pod.uid)
        if entry is None:
            return None
        planned, np_planned = _copied(self._planned), _copied(self._np_planned)
        for each in self._nominated:
            if each.priority >= pod_class.priority and each.uid != pod.uid:
                self._view.take(each.entry, planned, np_planned)
        known = self._view.shortage(entry, planned, np_planned)
        if known is None:
            return None
        missing = largest(known, short)
        terminating = self._terminating_of(entry.quota)
        for uid, leaving in terminating.items():
            if _priority(self._cache, uid) < pod_class.priority:
                missing = sub(missing, {name: size for name, size in leaving.request.items() if name in missing})
        selected = select_victims(self._candidates_of(entry.quota), pod_class.priority, missing)
        if not selected:
            return None
        uids = {each.victim.uid for each in selected}
        self._ordered[entry.quota] = [each for each in self._ordered[entry.quota] if each.victim.uid not in uids]
        terminating.update((uid, self._view.pods[uid]) for uid in uids)
        self._nominated.append(_Nominated(pod_class.priority, pod.uid, entry))
        return entry.quota, selected

    def _terminating_of(self, quota: str) -> dict[str, Entry]:
        if quota not in self._terminating:
            pods = self._cache.view.pods
            self._terminating[quota] = {
                uid: entry
                for uid, entry in self._charged(quota)
                if (pod := pods.get(uid)) is not None and (pod.is_terminating() or self._cycle.is_evicted(uid))
            }
        return self._terminating[quota]

    def _candidates_of(self, quota: str) -> list[QuotaVictim]:
        # An earlier choice of the cycle draws budgets down: evictions that were within them may violate them now.
        if self._budgets is not self._cycle.budgets:
            self._budgets = self._cycle.budgets
            self._ordered.clear()
        if quota not in self._ordered:
            terminating = self._terminating_of(quota)
            candidates: list[tuple[Victim, Mapping[str, int]]] = []
            refused = []
            for uid, entry in self._charged(quota):
                pod = self._cache.view.pods.get(uid)
                if pod is None or pod.pod_class is None or uid in terminating:
                    continue
                if not entry.preemptible or not pod.assignment():
                    continue
                candidates.append((victim_of(pod), entry.request))
                if pod.eviction_refused_seq:
                    refused.append(uid)
            self._ordered[quota] = eviction_order(candidates, self._budgets, refused)
        return self._ordered[quota]

    def _charged(self, quota: str) -> Iterator[tuple[str, Entry]]:
        for uid in self._view.pods_of.get(quota, ()):
            if (entry := self._view.pods[uid]).charged:
                yield uid, entry


def _nominated(cache: CycleInputs) -> Iterator[_Nominated]:
    """The pods for which capacity in their quota is freed."""
    for uid, pod in cache.nominated.items():
        entry = _entry(cache, uid) if waits_for_quota(pod.reasons) else None
        if entry is not None:
            yield _Nominated(_priority(cache, uid), uid, entry)


def _may_preempt(cache: CycleInputs, pod_class: PodClass) -> bool:
    profile = cache.profiles.get(pod_class.scheduler)
    return profile is not None and profile.preemption is not None and pod_class.pod.spec.preemption_policy != "Never"


def _entry(cache: CycleInputs, uid: str) -> Entry | None:
    pod = cache.view.pods.get(uid)
    if pod is None or pod.pod_class is None:
        return None
    return cache.view.quota.entry_of(uid, pod.pod_class.namespace, pod.pod_class.labels, pod.pod_class.request)


def _priority(cache: CycleInputs, uid: str) -> int:
    pod = cache.view.pods.get(uid)
    return pod.pod_class.priority if pod is not None and pod.pod_class is not None else 0


def _copied(sums: Mapping[str, Amounts]) -> dict[str, Amounts]:
    return {quota: dict(sizes) for quota, sizes in sums.items()}
