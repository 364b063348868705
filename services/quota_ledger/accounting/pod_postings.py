"""The postings of pods: attached, charged, resized, moved between quotas, released."""

from msgspec.structs import replace

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    PODS,
    SUPPLY,
    Posting,
    hold_account,
    pending_account,
    transfer,
    used_account,
)
from services.quota_ledger.pods.pod_quota_entry import AttachedPod
from services.quota_ledger.pods.pod_table import PodTable
from services.quota_ledger.tree.quota_tree import QuotaTree
from shared.domain.amounts import Amounts, negated, sub
from shared.events.quota import PodAttached, PodCharged, PodMoved
from shared.kube.elastic_quota import RESERVED, ROOT


class PodPostings:
    """Trees and the pods in them.

    Attributes:
        trees: by tree id; the default tree "" always exists.
        pods: uid -> the pod's entry; `table` stores them.
    """

    def __init__(self, *, scales_min: bool, guarantees: bool, table: PodTable | None) -> None:
        self._scales_min, self._guarantees = scales_min, guarantees
        self.table = table or PodTable()
        self.trees: dict[str, QuotaTree] = {}
        self.pods = self.table.attached
        self.tree("")

    def tree(self, name: str) -> QuotaTree:
        """Returns a tree; creates it at its first mention."""
        if name not in self.trees:
            self.trees[name] = QuotaTree(scales_min=self._scales_min, guarantees=self._guarantees)
        return self.trees[name]

    def pods_of(self, quota: str) -> list[str]:
        """Returns the uids of a quota's own pods, sorted."""
        return self.table.by_quota.get(quota)

    def _attached(self, event: PodAttached | PodMoved) -> list[Posting]:
        uid = event.pod_uid
        if uid in self.pods:
            return []
        self.tree(event.tree)
        pod = AttachedPod(event.tree, event.quota, event.request, event.preemptible, matched_by=event.matched_by)
        self.table.attach(uid, event.pod, pod)
        self._count_request(pod, pod.request)
        return transfer(pod.tree, CONSUMPTION, PODS, pending_account(pod.quota), pod.request)

    def _charged(self, event: PodCharged) -> list[Posting]:
        entry = self.table.entries.get(event.pod_uid)
        if entry is None or (pod := entry.attached) is None:
            return []
        entry.attached = self.table.charged(pod, event.epoch, event.cycle)
        return [] if pod.charged else self._use(pod)

    def _uncharged(self, uid: str) -> list[Posting]:
        pod = self.pods.get(uid)
        if pod is None or not pod.charged:
            return []
        self.table.attach(uid, self.pods.name(uid), replace(pod, charged=False))
        return self._use(pod, back=True)

    def _released(self, uid: str) -> list[Posting]:
        pod = self.pods.get(uid)
        if pod is None:
            return []
        batch = self._uncharged(uid)
        self.table.detach(uid)
        self._count_request(pod, negated(pod.request))
        return batch + transfer(pod.tree, CONSUMPTION, pending_account(pod.quota), PODS, pod.request)

    def _resized(self, uid: str, after: Amounts) -> list[Posting]:
        pod = self.pods.get(uid)
        if pod is None:
            return []
        delta = sub(after, pod.request)
        self.table.attach(uid, self.pods.name(uid), replace(pod, request=after))
        self._count_request(pod, delta)
        account = pending_account(pod.quota)
        batch: list[Posting] = []
        if pod.charged:
            account = used_account(pod.quota, preemptible=pod.preemptible)
            self._count_used(pod, delta)
            batch += self._reserved(pod, delta)
        return batch + transfer(pod.tree, CONSUMPTION, PODS, account, delta)

    def _moved(self, event: PodMoved) -> list[Posting]:
        uid = event.pod_uid
        before = self.pods.get(uid)
        if before is None:
            return []
        batch = self._released(uid)
        batch += self._attached(event)
        if before.charged:
            after = self.pods[uid]
            charged = self.table.charged(after, before.epoch, before.cycle)
            self.table.attach(uid, event.pod, charged)
            batch += self._use(after)
        return batch

    def _use(self, pod: AttachedPod, *, back: bool = False) -> list[Posting]:
        amounts = negated(pod.request) if back else pod.request
        self._count_used(pod, amounts)
        account = used_account(pod.quota, preemptible=pod.preemptible)
        batch = transfer(pod.tree, CONSUMPTION, pending_account(pod.quota), account, amounts)
        return batch + self._reserved(pod, amounts) if pod.quota in RESERVED else batch

    def _reserved(self, pod: AttachedPod, amounts: Amounts) -> list[Posting]:
        """The use of the system and default groups is taken from the capacity that the others share."""
        return transfer(pod.tree, SUPPLY, hold_account(ROOT), "supply", amounts) if pod.quota in RESERVED else []

    def _count_request(self, pod: AttachedPod, amounts: Amounts) -> None:
        self.trees[pod.tree].add_request(pod.quota, amounts, {} if pod.preemptible else amounts)

    def _count_used(self, pod: AttachedPod, amounts: Amounts) -> None:
        self.trees[pod.tree].add_used(pod.quota, amounts, {} if pod.preemptible else amounts)
