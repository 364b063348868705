"""What the ledger's own log says: trees, pods and balances, as a fold over the `quota` context alone.

Source: spec/quota.md 7.2, 7.3.
"""

from typing import NamedTuple

import msgspec

from services.quota_ledger.accounting.double_entry import (
    CONSUMPTION,
    SUPPLY,
    Balances,
    Posting,
    hold_account,
    pending_account,
    pod_account,
    transfer,
    used_account,
)
from services.quota_ledger.tree.quota_tree import QuotaTree
from services.quota_ledger.tree.runtime_delta import RuntimeDelta
from shared.domain.amounts import Amounts, negated, sub
from shared.domain.quota_lookup import QuotaLookup
from shared.events import Event
from shared.events.quota import (
    CapacitySet,
    OveruseEnded,
    OveruseStarted,
    PodAttached,
    PodCharged,
    PodChargeReverted,
    PodMoved,
    PodReleased,
    PodResized,
    QuotaDeclared,
    QuotaDeleted,
    QuotaRejected,
    QuotaReparented,
    QuotaUpdated,
    RevocationDecided,
    RuntimeRecomputed,
)
from shared.kube.elastic_quota import RESERVED, ROOT


class AttachedPod(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod holds in the books.

    Attributes:
        request: the vector frozen when it was attached or resized; what is released is what was posted.
        epoch, cycle: of the scheduler's newest ask; 0 for a pod that others placed.
    """

    pod: str
    tree: str
    quota: str
    request: dict[str, int]
    preemptible: bool = True
    charged: bool = False
    matched_by: str = "label"
    epoch: int = 0
    cycle: int = 0

    def charged_by(self, epoch: int, cycle: int) -> "AttachedPod":
        """The same pod once an ask has charged it."""
        return AttachedPod(
            self.pod,
            self.tree,
            self.quota,
            self.request,
            self.preemptible,
            charged=True,
            matched_by=self.matched_by,
            epoch=epoch,
            cycle=cycle,
        )  # half the time of replacing some fields, for every charge


class OveruseClock(NamedTuple):
    """An over-used quota's clock: since when, or when its pods were last revoked."""

    tree: str
    since_ns: int


class LedgerProjection:
    """Trees, pods, balances.

    Attributes:
        trees: by tree id; the default one always is there.
        tree_of: quota -> its tree id.
        pods: uid -> what it holds.
        pods_of: quota -> uids of its pods.
        over: quota -> the clock of its over-use.
        rejected: quota -> why its object is not followed.
        names: which quota a pod belongs to, by what is declared here.
    """

    def __init__(self, *, scales_min: bool = True, guarantees: bool = False, default_group: bool = True) -> None:
        self._scales_min, self._guarantees, self._default_group = scales_min, guarantees, default_group
        self.names = QuotaLookup(default_group=default_group)
        self.trees: dict[str, QuotaTree] = {}
        self.tree_of: dict[str, str] = {}
        self.pods: dict[str, AttachedPod] = {}
        self.pods_of: dict[str, dict[str, None]] = {}
        self.over: dict[str, OveruseClock] = {}
        self.rejected: dict[str, str] = {}
        self.balances = Balances()
        self.tree("")

    def empty(self) -> "LedgerProjection":
        """LedgerProjection without an entry, which share by the same settings."""
        return LedgerProjection(
            scales_min=self._scales_min, guarantees=self._guarantees, default_group=self._default_group
        )

    def tree(self, name: str) -> QuotaTree:
        """A tree, made at its first mention."""
        if name not in self.trees:
            self.trees[name] = QuotaTree(scales_min=self._scales_min, guarantees=self._guarantees)
        return self.trees[name]

    def apply(self, event: Event) -> list[Posting]:
        """Fold one event of the `quota` context.

        Returns:
            What it posts; sums to zero per book and resource.
        """
        batch = self._taken(event)
        self.balances.post(batch)
        return batch

    def _taken(self, event: Event) -> list[Posting]:
        match event:
            case PodCharged():
                return self._charged(event)
            case PodAttached(pod_uid=uid, pod=pod, tree=tree, quota=quota):
                return self._attached(
                    uid, AttachedPod(pod, tree, quota, event.request, event.preemptible, matched_by=event.matched_by)
                )
            case PodChargeReverted(pod_uid=uid):
                return self._uncharged(uid)
            case PodReleased(pod_uid=uid):
                return self._released(uid)
            case PodResized(pod_uid=uid, after=after):
                return self._resized(uid, after)
            case PodMoved():
                return self._moved(event)
            case RuntimeRecomputed(tree=name):
                return self._granted(name, RuntimeDelta.from_event(event))
            case CapacitySet(tree=name, total=total):
                delta = sub(total, self.tree(name).total)
                self.tree(name).set_total(total)
                return transfer(name, SUPPLY, "supply", hold_account(ROOT), delta)
            case QuotaDeclared() | QuotaUpdated() | QuotaReparented() | QuotaDeleted():
                return self._structured(event)
        self._noted(event)
        return []

    def _noted(self, event: Event) -> None:
        match event:
            case OveruseStarted(quota=quota, tree=name, at_ns=at):
                self.over[quota] = OveruseClock(name, at)
            case RevocationDecided(quota=quota, tree=name, at_ns=at):
                self.over[quota] = OveruseClock(name, at)
            case OveruseEnded(quota=quota):
                self.over.pop(quota, None)
            case QuotaRejected(quota=quota, reason=reason):
                self.rejected[quota] = reason
                if not reason:
                    del self.rejected[quota]

    def _structured(self, event: QuotaDeclared | QuotaUpdated | QuotaReparented | QuotaDeleted) -> list[Posting]:
        name, quota, tree = event.tree, event.quota, self.tree(event.tree)
        before = tree.quotas.get(quota)
        runtime = before.runtime if before else {}
        match event:
            case QuotaDeleted() if before:
                tree.delete_quota(quota)
                self.names.drop(quota)
                self.tree_of.pop(quota, None)
                self.over.pop(quota, None)
                return transfer(name, SUPPLY, hold_account(quota), hold_account(before.declared.parent), runtime)
            case QuotaUpdated(declared=declared) if before:
                tree.update_quota(declared)
                self.names.put(declared)
            case QuotaReparented(declared=declared) if before:
                parent = before.declared.parent
                tree.update_quota(declared)
                self.names.put(declared)
                return transfer(name, SUPPLY, hold_account(declared.parent), hold_account(parent), runtime)
            case QuotaDeclared(declared=declared) if not before:
                self.tree_of[quota] = name
                self.names.put(declared)
                tree.add_quota(declared)
        return []

    def _granted(self, name: str, moved: RuntimeDelta) -> list[Posting]:
        """Each child takes from its parent's what its runtime moves by; one posting for what an account gains and gives."""
        tree = self.tree(name)
        quotas = tree.quotas
        batch: list[Posting] = []
        for resource, differences in tree.apply_delta(moved).items():
            sums = dict(differences)
            for quota, delta in differences.items():
                parent = quotas[quota].declared.parent
                sums[parent] = sums.get(parent, 0) - delta
            batch += [((name, SUPPLY, hold_account(quota)), {resource: size}) for quota, size in sums.items() if size]
        return batch

    def _attached(self, uid: str, pod: AttachedPod) -> list[Posting]:
        if uid in self.pods:
            return []
        self.pods[uid] = pod
        self.pods_of.setdefault(pod.quota, {})[uid] = None
        self._ask(pod, pod.request)
        return transfer(pod.tree, CONSUMPTION, pod_account(uid), pending_account(pod.quota), pod.request)

    def _charged(self, event: PodCharged) -> list[Posting]:
        uid = event.pod_uid
        pod = self.pods.get(uid)
        if pod is None:
            return []
        self.pods[uid] = pod.charged_by(event.epoch, event.cycle)
        return [] if pod.charged else self._use(pod)

    def _uncharged(self, uid: str) -> list[Posting]:
        pod = self.pods.get(uid)
        if pod is None or not pod.charged:
            return []
        self.pods[uid] = msgspec.structs.replace(pod, charged=False)
        return self._use(pod, back=True)

    def _released(self, uid: str) -> list[Posting]:
        pod = self.pods.get(uid)
        if pod is None:
            return []
        batch = self._uncharged(uid)
        del self.pods[uid]
        del self.pods_of[pod.quota][uid]
        if not self.pods_of[pod.quota]:
            del self.pods_of[pod.quota]
        self._ask(pod, negated(pod.request))
        return batch + transfer(pod.tree, CONSUMPTION, pending_account(pod.quota), pod_account(uid), pod.request)

    def _resized(self, uid: str, after: Amounts) -> list[Posting]:
        pod = self.pods.get(uid)
        if pod is None:
            return []
        delta = sub(after, pod.request)
        self.pods[uid] = msgspec.structs.replace(pod, request=after)
        self._ask(pod, delta)
        where = pending_account(pod.quota)
        batch: list[Posting] = []
        if pod.charged:
            where = used_account(pod.quota, preemptible=pod.preemptible)
            self._count_used(pod, delta)
            batch += self._reserved(pod, delta)
        return batch + transfer(pod.tree, CONSUMPTION, pod_account(uid), where, delta)

    def _moved(self, event: PodMoved) -> list[Posting]:
        before = self.pods.get(event.pod_uid)
        if before is None:
            return []
        batch = self._released(event.pod_uid)
        after = AttachedPod(
            event.pod, event.tree, event.quota, event.request, event.preemptible, matched_by=event.matched_by
        )
        batch += self._attached(event.pod_uid, after)
        if before.charged:
            self.pods[event.pod_uid] = msgspec.structs.replace(
                after, charged=True, epoch=before.epoch, cycle=before.cycle
            )
            batch += self._use(after)
        return batch

    def _use(self, pod: AttachedPod, *, back: bool = False) -> list[Posting]:
        vector = negated(pod.request) if back else pod.request
        self._count_used(pod, vector)
        where = used_account(pod.quota, preemptible=pod.preemptible)
        batch = transfer(pod.tree, CONSUMPTION, pending_account(pod.quota), where, vector)
        return batch + self._reserved(pod, vector) if pod.quota in RESERVED else batch

    def _reserved(self, pod: AttachedPod, vector: Amounts) -> list[Posting]:
        """What the system and default groups use is out of the capacity that is shared."""
        return transfer(pod.tree, SUPPLY, hold_account(ROOT), "supply", vector) if pod.quota in RESERVED else []

    def _ask(self, pod: AttachedPod, vector: Amounts) -> None:
        self.tree(pod.tree).add_request(pod.quota, vector, {} if pod.preemptible else vector)

    def _count_used(self, pod: AttachedPod, vector: Amounts) -> None:
        self.tree(pod.tree).add_used(pod.quota, vector, {} if pod.preemptible else vector)
