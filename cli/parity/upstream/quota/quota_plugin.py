"""Upstream's quota plugin as far as recorded histories show it: objects arrive one by one and change its books.

Without quirks it is what production makes of the same history; each quirk changes one thing.

Source: spec/quota.md 1.3, 2.1, 2.4, 2.5.
"""

from collections.abc import Sequence

from cli.parity.upstream.quota.immediate_pods import ImmediatePods
from cli.parity.upstream.quota.pod_events import EventPods
from cli.parity.upstream.quota.quirks import Quirk, Quirks
from cli.parity.upstream.quota.quota_books import QuotaBooks, Raw
from cli.parity.upstream.quota.quota_objects import bounded, is_same, keeps_rules, stock
from shared.domain.amounts import Amounts, add, mask, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota, declared
from shared.kube.quantity import amounts


class QuotaPlugin(QuotaBooks):
    """The books after a sequence of recorded events.

    Attributes:
        pods: the pods in the books.
    """

    def __init__(self, given: Raw, quirks: Quirks) -> None:
        super().__init__(given, quirks)
        self._nodes: dict[str, Amounts] = {}
        self.pods = EventPods(self) if Quirk.LATE_HOMES in self.quirks else ImmediatePods(self)
        self._going: set[str] = set()
        tree = self.tree("")
        for group in RESERVED:
            quota = stock(group, self.args, self.quirks)
            tree.add_quota(quota)
            tree.quotas[group].lends |= Quirk.GROUPS_COMPETE in self.quirks
            self.names.put(quota)
            self.tree_of[group] = ""

    @classmethod
    def after(cls, given: Raw, quirks: Quirks) -> "QuotaPlugin":
        """Returns the books after all events of a case, shared."""
        scheduler = cls(given, quirks)
        for event in given["events"]:
            scheduler.take(event)
        scheduler.settle()
        return scheduler

    def take(self, event: Raw) -> None:
        """Takes one recorded event."""
        if "quota" in event and Quirk.STALE_DEMAND not in self.quirks:
            self.settle()  # a quota that loses its parent keeps the runtime that it had until then
        match event["type"]:
            case "nodeAdd" | "nodeUpdate":
                self._node(event["node"]["metadata"]["name"], _allocatable(event["node"]))
            case "nodeDelete":
                self._node(event["node"]["metadata"]["name"], {})
            case "quotaAdd":
                self._quota(event["quota"], is_new=True)
            case "quotaUpdate":
                self._quota(event["quota"], is_new=False)
            case "quotaDelete":
                self._quota_gone(declared(event["quota"]))
            case "replaceQuotas":
                self._replace(event["quotas"])
            case "podAdd":
                self.pods.add(event["pod"])
            case "podUpdate":
                self.pods.update(event["old"], event["pod"])
            case "podDelete":
                self.pods.delete(event["pod"])
            case "reserve":
                self.pods.reserve(event["pod"])
            case "unreserve":
                self.pods.unreserve(event["pod"])
            case "migrateDefault" if "DisableDefaultQuota" not in self.gates:
                self.pods.migrate()
        self._drop_childless()
        self.pods.settle()

    def settle(self) -> None:
        """Computes the runtimes of all trees."""
        for tree in self.trees.values():
            tree.settle()

    def _node(self, name: str, allocatable: Amounts) -> None:
        delta = sub(allocatable, self._nodes.get(name, {}))
        self._nodes[name] = allocatable
        tree = self.trees[""]
        tree.set_total(add(tree.total, delta))
        self._drop_resources()

    def _quota(self, raw: Raw, *, is_new: bool) -> None:
        quota = declared(raw)
        if quota.deleting or quota.name == ROOT:
            return
        before = self.names.quotas.get(quota.name)
        quota = bounded(quota, self.quirks)
        if Quirk.TAKES_ANY_QUOTA not in self.quirks and quota != before and not keeps_rules(raw, quota):
            return
        self._going.discard(quota.name)
        self.names.put(quota)
        where = self.tree_of.setdefault(quota.name, quota.tree if "MultiQuotaTree" in self.gates else "")
        tree = self.tree(where)
        known = tree.quotas.get(quota.name)
        if known is None:
            tree.add_quota(quota)
        elif not is_same(known.declared, quota) and not self._is_second(quota, is_new=is_new):
            tree.update_quota(quota)
        if quota.is_root and quota.total is not None and where:
            self._set_total(where, quota.total, quota)

    def _is_second(self, quota: DeclaredQuota, *, is_new: bool) -> bool:
        return is_new and quota.name not in RESERVED and Quirk.TAKES_ANY_QUOTA in self.quirks

    def _regroup(self, group: str) -> None:
        """A reserved group whose object is deleted is as at the start."""
        quota = stock(group, self.args, self.quirks)
        self.names.put(quota)
        self.trees[""].update_quota(quota)

    def _quota_gone(self, quota: DeclaredQuota) -> None:
        if quota.name in RESERVED:
            self._regroup(quota.name)
        if quota.name in RESERVED or quota.name not in self.tree_of:
            return
        self._going.add(quota.name)
        if Quirk.FORGETS_CHILDREN not in self.quirks:
            return
        where = self._drop(quota.name)
        if where and quota.is_root and quota.total is not None and where in self.trees:
            self._set_total(where, {}, quota)
            del self.trees[where]

    def _drop(self, name: str) -> str:
        self._going.discard(name)
        gone = self.names.quotas[name]
        self.names.drop(name)
        where = self.tree_of.pop(name)
        self.pods.forget(where, name)
        if where in self.trees and name in self.trees[where].quotas:
            self.trees[where].delete_quota(name)
        if Quirk.FORGETS_CHILDREN not in self.quirks and where and gone.is_root and gone.total is not None:
            self._set_total(where, {}, gone)
        return where

    def _drop_childless(self) -> None:
        while True:
            parents = {quota.parent for quota in self.names.quotas.values()}
            childless = sorted(self._going - parents)
            if not childless:
                return
            for name in childless:
                self._drop(name)

    def _set_total(self, where: str, size: Amounts, quota: DeclaredQuota) -> None:
        tree, default = self.trees[where], self.trees[""]
        delta = sub(size, tree.total)
        tree.set_total(size)
        if not quota.ignores_default_tree:
            default.set_total(sub(default.total, delta))
        self._drop_resources()

    def _drop_resources(self) -> None:
        if Quirk.KEEPS_RESOURCES in self.quirks:
            return
        tree = self.trees[""]
        there = {name for sizes in self._nodes.values() for name in sizes}
        there |= {name for where, other in self.trees.items() if where for name in other.total}
        tree.set_total(mask(tree.total, there))

    def _replace(self, raws: Sequence[Raw]) -> None:
        """Takes the list with which a scheduler starts: nothing is in the books yet."""
        for raw in raws:
            self._quota(raw, is_new=True)
        for tree in self.trees.values():
            tree.quotas[ROOT].allocated = {}
            tree.rebuild()


def _allocatable(raw: Raw) -> Amounts:
    return amounts((raw.get("status") or {}).get("allocatable") or {})
