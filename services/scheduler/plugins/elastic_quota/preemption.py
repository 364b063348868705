"""Preemption inside a quota: for a pod that found a node but does not fit into its quota, pods of that quota are
evicted.

Only pods of the same quota, of lower priority, charged and preemptible are victims; none of the system and default
quotas are. The pod is nominated for the node that the cycle found for it, and the capacity in the quota is kept for it
until it is placed.

Source: spec/quota.md 6.3.
"""

from collections.abc import Iterator, Mapping

from services.scheduler.cache.disruption_budgets import Victim
from services.scheduler.framework.gang_members_as_victims import GangVictims
from services.scheduler.framework.nominations_and_victims_of_cycle import Nomination, victim_of
from services.scheduler.framework.post_filter import PostFilter, PostFilterCycle, RefusedByQuota
from services.scheduler.framework.victim_selection import Candidate, by_importance
from services.scheduler.plugins.elastic_quota.nominated_pod_quota import (
    NominatedEntry,
    copied,
    entry_of,
    nominated_entries,
    priority_of,
)
from services.scheduler.plugins.elastic_quota.victims import QuotaVictim, eviction_order, joined, select_victims
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_headroom import Entry
from shared.domain.amounts import Amounts, largest, sub


class QuotaPreemption(PostFilter):
    """Selects victims for the refused pods of one cycle, so that no two of them count on the same capacity.

    A pod that the cycle nominates for a node has the capacity that its victims free in its quota: nobody else counts on
    it. A pod that the ledger has charged for this cycle counts, although the followed log may not show the charge yet.
    """

    def __init__(self, cycle: PostFilterCycle) -> None:
        self._cache = cycle.cache
        self._placed = cycle.placed
        self._nominated_before = cycle.nominated
        self._cycle = cycle.preemptions
        has_gangs = bool(cycle.cache.view.gangs.gang_of)
        self._gangs = GangVictims(cycle.cache, cycle.preemptions) if has_gangs else None
        self._view = cycle.cache.view.quota
        self._planned: tuple[dict[str, Amounts], dict[str, Amounts]] | None = None  # all, non-preemptible
        self._nominated: dict[str, NominatedEntry] = {}
        self._budgets = cycle.preemptions.budgets
        self._seen = len(cycle.preemptions.evicted)  # number of evictions of the cycle that the rest contains
        self._ordered: dict[str, list[QuotaVictim]] = {}
        self._terminating: dict[str, dict[str, Entry]] = {}

    def after_charge(self, refused: RefusedByQuota) -> Nomination | None:
        """Returns the pod's node with its victims in the quota; None where none is needed, or all of them would not be
        enough.
        """
        # No victim frees the min of a quota that non-preemptible pods use up.
        if refused.short.stage == "nonPreemptible" or refused.pod_class.pod.spec.preemption_policy == "Never":
            return None
        entry = entry_of(self._cache.view, refused.pod)
        if entry is None:
            return None
        selected = self._select(refused, entry)
        if not selected:
            return None
        victims = tuple(by_importance(victim for each in selected for victim in (each.victim, *each.others)))
        violated = tuple(sorted({name for each in selected for name in each.violates}))
        candidate = Candidate(refused.node, victims, sum(bool(each.violates) for each in selected), violated)
        return Nomination(refused.pod, refused.pod_class, candidate, quota=entry.quota)

    def waits_for_quota(self, pod: PodRecord) -> bool:
        """See `PostFilter`."""
        entry, priority, pods = entry_of(self._cache.view, pod), priority_of(pod), self._cache.view.pods
        return entry is not None and any(
            uid in pods and priority_of(pods[uid]) < priority for uid in self._terminating_of(entry.quota)
        )

    def _select(self, refused: RefusedByQuota, entry: Entry) -> list[QuotaVictim] | None:
        """Selects the victims for a pod.

        The shortfall in the ledger's response may rest on more than the followed log shows, and it leaves out the
        capacity that is kept for others: the larger of both counts.
        """
        priority = refused.pod_class.priority
        planned, np_planned = (copied(sums) for sums in self._charged_by_cycle())
        for each in self._nominated_now():
            if each.priority >= priority and each.uid != refused.pod.uid:
                self._view.take(each.entry, planned, np_planned)
        known = self._view.shortage(entry, planned, np_planned)
        if known is None:
            return None
        self._catch_up()
        missing = largest(known, refused.short.short)
        pods = self._cache.view.pods
        for uid, leaving in self._terminating_of(entry.quota).items():
            if uid in pods and priority_of(pods[uid]) < priority:
                missing = sub(missing, {name: size for name, size in leaving.request.items() if name in missing})
        selected = None
        for ordered in self._options(self._candidates_of(entry.quota), refused.pod.uid, priority):
            selected = select_victims(ordered, priority, missing)
            if selected is not None:
                break
        if selected:
            charged = {uid for uid, _ in self._charged(entry.quota)}
            uids = {victim.uid for each in selected for victim in (each.victim, *each.others)} & charged
            self._ordered[entry.quota] = [each for each in self._ordered[entry.quota] if each.victim.uid not in uids]
            self._terminating[entry.quota].update((uid, self._view.pods[uid]) for uid in uids)
            self._seen += sum(1 + len(each.others) for each in selected)
        return selected

    def _options(self, ordered: list[QuotaVictim], preemptor: str, priority: int) -> Iterator[list[QuotaVictim]]:
        """Yields the candidates as they may be evicted: those of gangs beyond their minimum, then whole gangs."""
        if self._gangs is None:
            yield ordered
            return
        part_of = {each.victim.uid: each for each in ordered if each.victim.priority < priority}
        place_of = {each.victim.uid: place for place, each in enumerate(ordered)}
        for lots in self._gangs.options(part_of, preemptor, priority):
            option = [
                joined([part_of[pod.uid] for pod in lot.pods], lot.others)
                if len(lot.pods) > 1 or lot.others
                else part_of[lot.pods[0].uid]
                for lot in lots
            ]
            yield sorted(option, key=lambda each: (each.is_last_resort, place_of[each.victim.uid]))

    def _catch_up(self) -> None:
        """Drops candidates that another choice of the cycle may have changed: it draws budgets down, so that evictions
        that were within them may violate them now.
        """
        if self._seen != len(self._cycle.evicted):
            self._seen = len(self._cycle.evicted)
            self._terminating.clear()
            self._ordered.clear()
        if self._budgets is not self._cycle.budgets:
            self._budgets = self._cycle.budgets
            self._ordered.clear()

    def _charged_by_cycle(self) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
        if self._planned is None:
            self._planned = {}, {}
            for pod, _ in self._placed():
                entry = entry_of(self._cache.view, pod)
                if entry is not None and not entry.charged:
                    self._view.take(entry, *self._planned)
        return self._planned

    def _nominated_now(self) -> Iterator[NominatedEntry]:
        """Yields the pods for which capacity in a quota is kept, those that this cycle has nominated included."""
        view = self._cache.view
        if not self._nominated:
            before = nominated_entries(view, self._nominated_before.values())
            self._nominated = {each.uid: each for each in before}
        for uid in self._cycle.nominated:
            if uid not in self._nominated and (entry := entry_of(view, view.pods[uid])) is not None:
                self._nominated[uid] = NominatedEntry(priority_of(view.pods[uid]), uid, entry)
        yield from self._nominated.values()

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
            self._ordered[quota] = eviction_order(candidates, self._cycle.budgets, refused)
        return self._ordered[quota]

    def _charged(self, quota: str) -> Iterator[tuple[str, Entry]]:
        for uid in self._view.pods_of.get(quota, ()):
            if (entry := self._view.pods[uid]).charged:
                yield uid, entry
