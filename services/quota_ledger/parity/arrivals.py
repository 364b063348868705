"""Objects arriving as they do at upstream's plugin, in recorded order, on our trees with upstream's switches.

Ours charges pods by what the logs say and reverses exactly what was charged; upstream keeps a cache of pods and recounts with today's
maxima. The recorded cases show the latter, so it is here, where only they use it.

Source: spec/quota.md 1.3, 2.4, 2.5; upstream pkg/scheduler/plugins/elasticquota/{pod,quota,node}_handler.go.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.quota_ledger.resolve import ENDED, counted_request, is_preemptible
from services.quota_ledger.sharing import wrapped
from services.quota_ledger.switches import UPSTREAM
from services.quota_ledger.tree import Tree
from shared.domain.amounts import Amounts, add, mask, negated, sub
from shared.domain.quota_names import Names
from shared.kube.elastic_quota import DEFAULT, RESERVED, ROOT, SYSTEM, DeclaredQuota, declared
from shared.kube.instants import SECOND, instant_ns
from shared.kube.pod import Pod
from shared.kube.quantity import amounts

STOCK_MAX = {"cpu": str((2**63 - 1) // 5), "memory": str((2**63 - 1) // 5)}

Raw = Mapping[str, Any]


class Cached:
    """A pod in upstream's cache: the first version seen, and whether it is assigned."""

    __slots__ = ("assigned", "key", "pod", "raw")

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.pod = msgspec.convert(raw, Pod)
        self.key = self.pod.metadata.key
        self.assigned = False


class Arrivals:
    """A scheduler's quotas after a sequence of recorded events."""

    def __init__(self, given: Raw) -> None:
        self.args: Raw = given["args"]
        self.gates = set(given["featureGates"])
        self.now_ns = instant_ns(given["now"])
        self.nodes: Amounts = {}
        self.start()

    def start(self) -> None:
        """Forget all quotas and pods; nodes stay."""
        self.trees: dict[str, Tree] = {}
        self.tree_of: dict[str, str] = {}
        self.names = Names(default_group="DisableDefaultQuota" not in self.gates)
        self.cache: dict[tuple[str, str], dict[str, Cached]] = {}
        self.tree("")
        self.names.put(DeclaredQuota(name=DEFAULT))
        self.names.put(DeclaredQuota(name=SYSTEM))

    def tree(self, name: str) -> Tree:
        """A tree, made at its first mention."""
        if name not in self.trees:
            tree = Tree(
                UPSTREAM,
                scales_min=self.args.get("enableMinQuotaScale", True),
                guarantees="ElasticQuotaGuaranteeUsage" in self.gates,
            )
            if name == "":
                for group, arg in ((SYSTEM, "systemQuotaGroupMax"), (DEFAULT, "defaultQuotaGroupMax")):
                    limit = amounts(self.args.get(arg) or STOCK_MAX)
                    tree.declare(DeclaredQuota(name=group, max=limit))
                    tree.accounts[group].lends = True
                tree.set_total(dict(self.nodes))
            self.trees[name] = tree
        return self.trees[name]

    def take(self, event: Raw) -> None:
        """One event."""
        kind = event["type"]
        match kind:
            case "nodeAdd":
                self._nodes_moved(_allocatable(event["node"]))
            case "nodeDelete":
                self._nodes_moved(negated(_allocatable(event["node"])))
            case "nodeUpdate":
                self._nodes_moved(sub(_allocatable(event["node"]), _allocatable(event["old"])))
            case "quotaAdd" | "quotaUpdate":
                self._quota(event["quota"], new=kind == "quotaAdd")
            case "quotaDelete":
                self._quota_gone(declared(event["quota"]))
            case "replaceQuotas":
                self._replace(event["quotas"])
            case "podAdd":
                self._pod_added(event["pod"])
            case "podUpdate":
                self._pod_updated(event["old"], event["pod"])
            case "podDelete":
                self._pod_gone(event["pod"])
            case "reserve" | "unreserve":
                self._assign(event["pod"], to=kind == "reserve")
            case "migrateDefault":
                self._migrate()

    def settle(self) -> None:
        """All runtimes."""
        for tree in self.trees.values():
            tree.settle()

    def resolve(self, pod: Pod) -> tuple[str, str]:
        """Quota and tree of a pod."""
        name, _ = self.names.resolve(pod.metadata.namespace, pod.metadata.labels)
        return name, self.tree_of.get(name, "")

    def counted(self, quota: str, tree: str, pod: Pod) -> Amounts:
        """What a pod counts with in a quota today."""
        asked = counted_request(pod, overhead="ElasticQuotaIgnorePodOverhead" not in self.gates)
        account = self.trees[tree].accounts.get(quota) if tree in self.trees else None
        return mask(asked, account.declared.max) if account else {}

    # nodes and quotas

    def _nodes_moved(self, delta: Amounts) -> None:
        self.nodes = add(self.nodes, delta)
        tree = self.trees[""]
        tree.set_total(add(tree.total, delta))

    def _quota(self, raw: Raw, *, new: bool) -> None:
        quota = declared(raw)
        if quota.deleting:
            return
        if quota.name == ROOT:
            return
        self.names.put(quota)
        if quota.name in RESERVED:
            weight = {name: wrapped(size) for name, size in quota.weight.items()}
            quota = msgspec.structs.replace(quota, weight=weight)
        where = quota.tree if "MultiQuotaTree" in self.gates else ""
        where = self.tree_of.setdefault(quota.name, where)
        tree = self.tree(where)
        known = tree.accounts.get(quota.name)
        if known is None:
            tree.declare(quota)
        elif (not new or quota.name in RESERVED) and not _same(known.declared, quota):
            tree.amend(quota)
        if quota.is_root and quota.total is not None and where:
            self._set_total(tree, quota.total, quota)

    def _set_total(self, tree: Tree, total: Amounts, quota: DeclaredQuota) -> None:
        delta = sub(total, tree.total)
        tree.set_total(total)
        if not quota.ignores_default_tree:
            default = self.trees[""]
            default.set_total(sub(default.total, delta))

    def _quota_gone(self, quota: DeclaredQuota) -> None:
        self.names.drop(quota.name)
        where = self.tree_of.pop(quota.name, "")
        self.cache.pop((where, quota.name), None)
        tree = self.trees.get(where)
        if tree is None:
            return
        if quota.name in tree.accounts:
            tree.retire(quota.name)
        if where and quota.is_root and quota.total is not None:
            self._set_total(tree, {}, quota)
            del self.trees[where]

    def _replace(self, raws: list[Raw]) -> None:
        self.start()
        for raw in raws:
            self._quota(raw, new=True)
        for tree in self.trees.values():
            tree.accounts[ROOT].allocated = {}
            tree.rebuild()

    # pods

    def _pod_added(self, raw: Raw) -> None:
        pod = msgspec.convert(raw, Pod)
        quota, tree = self.resolve(pod)
        if quota:
            self._enter(quota, tree, Cached(raw))

    def _enter(self, quota: str, tree: str, cached: Cached, *, assigned: bool | None = None) -> None:
        if self.is_ignored(cached.raw) or self._cached(quota, tree, cached.key) is not None:
            return
        if quota not in self.tree(tree).accounts:
            return
        self.cache.setdefault((tree, quota), {})[cached.key] = cached
        vector = self.counted(quota, tree, cached.pod)
        self._request(quota, tree, cached.pod, vector)
        if assigned if assigned is not None else _runs(cached.pod):
            cached.assigned = True
            self._use(quota, tree, cached.pod, vector)

    def _pod_updated(self, old_raw: Raw, raw: Raw) -> None:
        if old_raw["metadata"].get("resourceVersion") == raw["metadata"].get("resourceVersion"):
            return
        old, pod = msgspec.convert(old_raw, Pod), msgspec.convert(raw, Pod)
        (was, was_tree), (quota, tree) = self.resolve(old), self.resolve(pod)
        if (was, was_tree) != (quota, tree):
            if was:
                self._leave(was, was_tree, old)
            if quota:
                self._enter(quota, tree, Cached(raw))
            return
        if not quota:
            return
        cached = self._cached(quota, tree, pod.metadata.key)
        if cached is None:
            self._enter(quota, tree, Cached(raw))
            return
        if self.is_ignored(raw):
            self._leave(quota, tree, old)
            return
        after = self.counted(quota, tree, pod)
        change = sub(after, self.counted(quota, tree, old))
        self._request(quota, tree, pod, change)
        if cached.assigned:
            self._use(quota, tree, pod, change)
        elif _runs(pod):
            cached.assigned = True
            self._use(quota, tree, pod, after)

    def _pod_gone(self, raw: Raw) -> None:
        pod = msgspec.convert(raw, Pod)
        quota, tree = self.resolve(pod)
        if quota:
            self._leave(quota, tree, pod)

    def _leave(self, quota: str, tree: str, pod: Pod) -> None:
        cached = self._cached(quota, tree, pod.metadata.key)
        if cached is None:
            return
        vector = negated(self.counted(quota, tree, pod))
        if cached.assigned:
            self._use(quota, tree, pod, vector)
        self._request(quota, tree, pod, vector)
        del self.cache[tree, quota][cached.key]

    def _assign(self, raw: Raw, *, to: bool) -> None:
        pod = msgspec.convert(raw, Pod)
        quota, tree = self.resolve(pod)
        cached = self._cached(quota, tree, pod.metadata.key) if quota else None
        if cached is None or cached.assigned == to:
            return
        cached.assigned = to
        vector = self.counted(quota, tree, pod)
        self._use(quota, tree, pod, vector if to else negated(vector))

    def _migrate(self) -> None:
        if "DisableDefaultQuota" in self.gates:
            return
        for cached in list(self.cache.get(("", DEFAULT), {}).values()):
            quota, tree = self.resolve(cached.pod)
            if quota == DEFAULT:
                continue
            assigned = cached.assigned
            self._leave(DEFAULT, "", cached.pod)
            self._enter(quota, tree, Cached(cached.raw), assigned=assigned if tree == "" else None)

    def _cached(self, quota: str, tree: str, key: str) -> Cached | None:
        return self.cache.get((tree, quota), {}).get(key)

    def _request(self, quota: str, tree: str, pod: Pod, vector: Amounts) -> None:
        self.trees[tree].add_request(quota, vector, {} if is_preemptible(pod) else vector)

    def _use(self, quota: str, tree: str, pod: Pod, vector: Amounts) -> None:
        self.trees[tree].add_used(quota, vector, {} if is_preemptible(pod) else vector)

    def is_ignored(self, raw: Raw) -> bool:
        """Whether a terminating pod no longer counts."""
        metadata = raw["metadata"]
        at = metadata.get("deletionTimestamp")
        if not at:
            return False
        if "ElasticQuotaImmediateIgnoreTerminatingPod" in self.gates:
            return True
        if "ElasticQuotaIgnoreTerminatingPod" not in self.gates:
            return False
        grace_s = metadata.get("deletionGracePeriodSeconds") or 0
        return self.now_ns > instant_ns(at) + grace_s * SECOND


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and pod.status.phase not in ENDED


def _allocatable(raw: Raw) -> Amounts:
    if raw["metadata"].get("deletionTimestamp"):
        return {}
    return amounts((raw.get("status") or {}).get("allocatable") or {})


def _same(one: DeclaredQuota, other: DeclaredQuota) -> bool:
    """Whether nothing differs that the tree is made of."""
    return _built_from(one) == _built_from(other)


def _built_from(quota: DeclaredQuota) -> tuple[object, ...]:
    return (quota.lends, quota.is_parent, quota.parent, quota.max, quota.min, quota.weight)
