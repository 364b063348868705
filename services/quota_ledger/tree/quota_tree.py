"""One tree of quotas: sums from the leaves to the root, runtimes from the root to the leaves.

Source: spec/quota.md 2.3, 2.5, 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Set as AbstractSet

from services.quota_ledger.tree.aggregation import Aggregation
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.recompute_runtimes import RuntimeUpdate
from shared.domain.amounts import Amounts, capped, largest, mask, negated, sub
from shared.kube.elastic_quota import ROOT, DeclaredQuota


class QuotaTree(Aggregation, RuntimeUpdate):
    """The quotas of one tree id: added, updated and deleted, with their sums and runtimes."""

    def set_total(self, total: Amounts) -> None:
        """Replaces the total."""
        self.total = total
        self._recount_capacity()

    def add_quota(self, quota: DeclaredQuota) -> None:
        """Adds a quota. Its children may exist already."""
        info = QuotaInfo(quota, self._fair_share_inputs, lends=self._lends(quota))
        resources = set(self._resource_counts)
        self.quotas[quota.name] = info
        self._count_resources(quota, +1)
        info.children = self._orphans.pop(quota.name, {})
        self._attach(info)
        if info.children:
            self.rebuild()
        else:
            self._propagate(info)
        self._resources_since(resources)

    def update_quota(self, quota: DeclaredQuota) -> None:
        """Replaces a quota's declaration."""
        info = self.quotas[quota.name]
        before, resources = info.declared, set(self._resource_counts)
        lends = self._lends(quota)
        if (before.max.keys(), before.min.keys(), before.parent) != (quota.max.keys(), quota.min.keys(), quota.parent):
            self._resources_changed = True
            info.scaled_min = mask(info.scaled_min, quota.min)
        self._count_resources(before, -1)
        self._count_resources(quota, +1)
        self._mark_changed(before.parent, quota.parent, quota.name)
        if (info.lends, before.is_parent) != (lends, quota.is_parent) and before.parent == quota.parent:
            info.set_declared(quota, lends=lends)
            self.rebuild()
        elif before.parent != quota.parent:
            self._detach(info)
            info.set_declared(quota, lends=lends)
            self._attach(info)
            self._repropagate(info)
        else:
            self._update_amounts(info, quota)
        self._resources_since(resources)

    def delete_quota(self, name: str) -> None:
        """Deletes a quota, and subtracts its sums from its parent."""
        resources = set(self._resource_counts)
        info = self.quotas.pop(name)
        self._detach(info)
        if info.children:
            self._orphans[name] = info.children
        self._count_resources(info.declared, -1)
        self._fair_share_inputs.release(info.demand_row)
        self.changed_levels.discard(name)
        self._resources_since(resources)

    def rebuild(self) -> None:
        """Computes all sums again from the requests and use of each quota's own pods; marks all levels."""
        self._mark_changed(*self.quotas)
        for info in self.quotas.values():
            info.clear_sums()
            info.refresh()
        for info in self.quotas.values():
            self._propagate(info)
        for info in self.quotas.values():
            path = self.path(info.name)
            self._raise_request(path, info.self_request, info.self_np_request)
            self._raise_used(path, info.self_used, info.self_np_used)

    def _resources_since(self, before: AbstractSet[str]) -> None:
        """Computes all allocations again if the resources that quotas have differ from the ones before."""
        if self._guarantees and self._resource_counts.keys() != before:
            for info in self.quotas.values():
                if info.self_used:
                    self._update_allocated(self.path(info.name))

    def _update_amounts(self, info: QuotaInfo, quota: DeclaredQuota) -> None:
        before = info.declared
        info.set_declared(quota, lends=info.lends)
        limited_request = capped(info.request, before.max)
        info.update_request()
        after = info.limited_request()
        info.set_demand(after)
        self._raise_guaranteed([info, *self.path(quota.parent)], {})
        self._raise_request(self.path(quota.parent), sub(after, limited_request), {})

    def _attach(self, info: QuotaInfo) -> None:
        self._paths.clear()
        if (parent := self.quotas.get(info.declared.parent)) is not None:
            parent.children[info.name] = None
            self._mark_changed(parent.name, info.name, parent.declared.parent)
        else:
            self._orphans.setdefault(info.declared.parent, {})[info.name] = None
        self._set_depth(info, parent.depth + 1 if parent else 1)

    def _set_depth(self, info: QuotaInfo, depth: int) -> None:
        info.depth = depth
        for name in info.children:
            self._set_depth(self.quotas[name], depth + 1)

    def _detach(self, info: QuotaInfo) -> None:
        self._paths.clear()
        above = self.path(info.declared.parent)
        if above:
            above[0].children.pop(info.name, None)
            self._mark_changed(above[0].name, above[0].declared.parent)
        elif orphans := self._orphans.get(info.declared.parent):
            orphans.pop(info.name, None)
            if not orphans:
                del self._orphans[info.declared.parent]
        self._raise_request(above, negated(info.limited_request()), negated(info.np_request))
        self._raise_sums(above, negated(info.used), negated(info.np_used))
        self._raise_guaranteed(above, negated(info.guaranteed))

    def _propagate(self, info: QuotaInfo) -> None:
        """Adds the request and guarantee of a quota's min to the sums above it."""
        if info.name == ROOT:
            return
        before = info.limited_request()
        info.update_request()
        after = info.limited_request()
        info.set_demand(after)
        self._mark_changed(info.declared.parent)
        above = self.path(info.declared.parent)
        self._raise_guaranteed([info, *above], {})
        self._raise_request(above, sub(after, before), {})

    def _repropagate(self, info: QuotaInfo) -> None:
        above = self.path(info.declared.parent)
        info.update_request()
        info.set_demand(info.limited_request())
        self._raise_request(above, info.limited_request(), info.np_request)
        self._raise_sums(above, info.used, info.np_used)
        if self._guarantees:
            info.guaranteed = largest(info.allocated, info.declared.min)  # its min may have changed with its parent
            self._raise_guaranteed(above, info.guaranteed)
