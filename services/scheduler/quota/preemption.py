"""Preemption inside a quota, in cycles: a pod that found a node but no room in its quota has pods of that quota make room, and the room is kept
for it until it comes.

Only pods of the same quota, of lower priority, charged and preemptible give way; of the system and default groups none do. The pod is nominated
for the node that the cycle had found for it.

Source: spec/quota.md 6.3.
"""

from collections.abc import Iterator, Mapping, Sequence

from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.cycle.cycle_preemptions import CyclePreemptions, victim_of
from services.scheduler.cycle.nomination import consequences, nomination
from services.scheduler.cycle.scheduling_cache import SchedulingCache
from services.scheduler.framework.victim_selection import Candidate, by_importance
from services.scheduler.quota.victims import QuotaVictim, eviction_order, select_victims
from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import PodRecord
from services.scheduler.state.quota_capacity import Entry
from services.scheduler.state.quota_reasons import waits_for_quota
from shared.domain.amounts import Amounts, largest, sub
from shared.domain.quota_charge import QuotaShort
from shared.events import Cause, Draft
from shared.events.scheduling import PodPlaced


class QuotaPreemptor:
    """Makes and keeps room in quotas, for one index."""

    def __init__(self, cache: SchedulingCache) -> None:
        self._cache = cache

    def refused_for_nominated(self, groups: Sequence[Sequence[str]]) -> dict[str, QuotaShort]:
        """The pods of a cycle that would take room which is kept for one of their own or of higher priority; of a group, all of them."""
        return _NominatedCapacity(self._cache).refused_for_nominated(groups)

    def made(
        self, before: Sequence[Draft], after: Sequence[Draft], refused: Mapping[str, QuotaShort | None]
    ) -> Iterator[Draft]:
        """What is recorded so that room is made for pods that were refused.

        Args:
            before: the cycle as it was decided, with the node of each pod.
            after: the cycle without those that were refused.
        """
        cache = self._cache
        placed = {draft.event.pod_uid: draft.event for draft in before if isinstance(draft.event, PodPlaced)}
        cycle = CyclePreemptions(cache)
        cycle.follow(draft.event for draft in after)
        making = _QuotaPreemption(cache, cycle)
        for draft in after:
            if isinstance(draft.event, PodPlaced):
                making.take(draft.event.pod_uid)
        asking = [uid for uid, short in refused.items() if short is not None and short.stage != "nonPreemptible"]
        for uid in sorted(asking, key=lambda each: -_priority(cache, each)):
            pod_record, short = cache.view.pods.get(uid), refused[uid]
            if (
                pod_record is None
                or pod_record.pod_class is None
                or short is None
                or not _may_preempt(cache, pod_record.pod_class)
            ):
                continue
            if (chosen := making.select_for(pod_record, pod_record.pod_class, short.short)) is None:
                continue
            quota, gone = chosen
            victims = tuple(by_importance(each.victim for each in gone))
            broken = sorted({name for each in gone for name in each.breaks})
            candidate = Candidate(placed[uid].node, victims, sum(bool(each.breaks) for each in gone), tuple(broken))
            said = nomination(pod_record, candidate, placed[uid].cycle, quota=quota)
            for event in consequences(cache, cycle, pod_record, pod_record.pod_class, said, victims):
                yield Draft(event, Cause("cluster", pod_record.since), uid)


class _NominatedCapacity:
    """The room that is kept in quotas for the pods that wait for it."""

    def __init__(self, cache: SchedulingCache) -> None:
        self._cache = cache
        self._waiting = sorted(_waiting(cache), key=lambda each: (-each[0], each[1]))

    def refused_for_nominated(self, groups: Sequence[Sequence[str]]) -> dict[str, QuotaShort]:
        found: dict[str, QuotaShort] = {}
        view = self._cache.view.quota
        taken: dict[str, Amounts] = {}
        np_taken: dict[str, Amounts] = {}
        for group in groups if self._waiting else ():
            why = next((short for uid in group if (short := self._refused_for_nominated(uid, taken, np_taken))), None)
            for uid in group:
                if why is not None:
                    found[uid] = why
                elif (entry := _entry(self._cache, uid)) is not None:
                    view.take(entry, taken, np_taken)
        return found

    def _refused_for_nominated(
        self, uid: str, taken: Mapping[str, Amounts], np_taken: Mapping[str, Amounts]
    ) -> QuotaShort | None:
        view, entry, priority = self._cache.view.quota, _entry(self._cache, uid), _priority(self._cache, uid)
        first = [
            each
            for each in self._waiting
            if entry is not None and each[0] >= priority and each[1] != uid and each[2].quota == entry.quota
        ]
        if not first or entry is None or not view.has_room(entry, taken, np_taken):
            return None  # nothing is kept; or the ledger says itself what is missing
        beside = {quota: dict(sizes) for quota, sizes in taken.items()}
        np_beside = {quota: dict(sizes) for quota, sizes in np_taken.items()}
        for _, _, waits in first:
            view.take(waits, beside, np_beside)
        short = view.shortage(entry, beside, np_beside)
        if short == {}:
            return None
        whose = self._cache.view.pods[first[0][1]].name
        message = f"Insufficient quotas, quotaName: {entry.quota}, the room in it is kept for {whose} of priority {first[0][0]}"
        return QuotaShort(quota=entry.quota, stage="quota", short=short or {}, message=message)


class _QuotaPreemption:
    """What a cycle's refused pods ask of the others in their quotas, so that no two of them rest on the same room.

    A pod that the cycle nominates for a node has the room that its victims free in its quota; they leave, and nobody else rests on it.
    """

    def __init__(self, cache: SchedulingCache, cycle: CyclePreemptions) -> None:
        self._cache = cache
        self._cycle = cycle
        self._budgets = cycle.budgets
        self._view = cache.view.quota
        self._taken: dict[str, Amounts] = {}
        self._np_taken: dict[str, Amounts] = {}
        self._waiting = list(_waiting(cache))
        waiting = {uid for _, uid, _ in self._waiting}
        for uid in cycle.nominated:
            if uid not in waiting and (entry := _entry(cache, uid)) is not None:
                self._waiting.append((_priority(cache, uid), uid, entry))
        self._turns: dict[str, list[QuotaVictim]] = {}
        self._leaving: dict[str, dict[str, Entry]] = {}

    def take(self, uid: str) -> None:
        """The cycle has charged a pod, which the ledger's log may not have said yet."""
        entry = _entry(self._cache, uid)
        if entry is not None and not entry.charged:
            self._view.take(entry, self._taken, self._np_taken)

    def select_for(
        self, pod_record: PodRecord, pod_class: PodClass, short: Mapping[str, int]
    ) -> tuple[str, list[QuotaVictim]] | None:
        """The quota of a pod, and those of its pods that have to go; None when nobody has to, or all would not be enough.

        Args:
            short: what the ledger says is missing. It may know more than what has been read of it here, and less: what is kept for others.
        """
        entry = _entry(self._cache, pod_record.uid)
        if entry is None:
            return None
        taken, np_taken = _copied(self._taken), _copied(self._np_taken)
        for priority, uid, waits in self._waiting:
            if priority >= pod_class.priority and uid != pod_record.uid:
                self._view.take(waits, taken, np_taken)
        known = self._view.shortage(entry, taken, np_taken)
        if known is None:
            return None
        missing = largest(known, short)
        leaving = self._leaving_from(entry.quota)
        for uid, gone in leaving.items():
            if _priority(self._cache, uid) < pod_class.priority:
                missing = sub(missing, {name: size for name, size in gone.request.items() if name in missing})
        chosen = select_victims(self._turns_of(entry.quota), pod_class.priority, missing)
        if not chosen:
            return None
        names = {each.victim.uid for each in chosen}
        self._turns[entry.quota] = [each for each in self._turns[entry.quota] if each.victim.uid not in names]
        leaving.update((uid, self._view.pods[uid]) for uid in names)
        self._waiting.append((pod_class.priority, pod_record.uid, entry))
        return entry.quota, chosen

    def _leaving_from(self, quota: str) -> dict[str, Entry]:
        if quota not in self._leaving:
            pods = self._cache.view.pods
            self._leaving[quota] = {
                uid: entry
                for uid, entry in self._charged(quota)
                if (pod_record := pods.get(uid)) is not None
                and (pod_record.is_terminating() or self._cycle.is_evicted(uid))
            }
        return self._leaving[quota]

    def _turns_of(self, quota: str) -> list[QuotaVictim]:
        if self._budgets is not self._cycle.budgets:  # drawn down by a choice: what follows may go beyond them now
            self._budgets = self._cycle.budgets
            self._turns.clear()
        if quota not in self._turns:
            cache = self._cache
            leaving = self._leaving_from(quota)
            candidates: list[tuple[Victim, Mapping[str, int]]] = []
            stayed = []
            for uid, entry in self._charged(quota):
                pod_record = cache.view.pods.get(uid)
                if (
                    pod_record is None
                    or pod_record.pod_class is None
                    or uid in leaving
                    or not entry.preemptible
                    or not pod_record.assignment()
                ):
                    continue
                candidates.append((victim_of(pod_record), entry.request))
                if pod_record.eviction_refused_seq:
                    stayed.append(uid)
            self._turns[quota] = eviction_order(candidates, self._budgets, stayed)
        return self._turns[quota]

    def _charged(self, quota: str) -> Iterator[tuple[str, Entry]]:
        for uid in self._view.pods_of.get(quota, ()):
            if (entry := self._view.pods[uid]).charged:
                yield uid, entry


def _waiting(cache: SchedulingCache) -> Iterator[tuple[int, str, Entry]]:
    """(priority, uid, entry) of the pods for whom room is made in their quota."""
    for uid, pod_record in cache.nominated.items():
        entry = _entry(cache, uid) if waits_for_quota(pod_record.reasons) else None
        if entry is not None:
            yield _priority(cache, uid), uid, entry


def _may_preempt(cache: SchedulingCache, pod_class: PodClass) -> bool:
    profile = cache.profiles.get(pod_class.scheduler)
    return profile is not None and profile.preemption is not None and pod_class.pod.spec.preemption_policy != "Never"


def _entry(cache: SchedulingCache, uid: str) -> Entry | None:
    pod_record = cache.view.pods.get(uid)
    if pod_record is None or pod_record.pod_class is None:
        return None
    return cache.view.quota.entry_of(
        uid, pod_record.pod_class.namespace, pod_record.pod_class.labels, pod_record.pod_class.request
    )


def _priority(cache: SchedulingCache, uid: str) -> int:
    pod_record = cache.view.pods.get(uid)
    return pod_record.pod_class.priority if pod_record is not None and pod_record.pod_class is not None else 0


def _copied(sums: Mapping[str, Amounts]) -> dict[str, Amounts]:
    return {quota: dict(sizes) for quota, sizes in sums.items()}
