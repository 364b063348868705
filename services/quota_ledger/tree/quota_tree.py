"""One tree of quotas: sums from the leaves to the root, shares from the root to the leaves.

Source: spec/quota.md 2.3, 2.5, 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from services.quota_ledger.tree.aggregation import Aggregation
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.runtime_update import RuntimeUpdate
from shared.domain.amounts import Amounts, capped, mask, negated, sub
from shared.kube.elastic_quota import ROOT, DeclaredQuota


class QuotaTree(Aggregation, RuntimeUpdate):
    """The quotas of one tree id, their sums and their runtimes: how they come, change and go."""

    def set_total(self, total: Amounts) -> None:
        """The tree's total is another one."""
        self.total = total
        self._recount_capacity()

    def declare(self, quota: DeclaredQuota) -> None:
        """A quota is new. Its children may be there already."""
        account = QuotaInfo(quota, self._sheet, lends=self._lends(quota))
        self.accounts[quota.name] = account
        self._count_dimensions(quota, +1)
        account.children = self._orphans.pop(quota.name, {})
        self._attach(account)
        if account.children:
            self.rebuild()
        else:
            self._enter(account)

    def amend(self, quota: DeclaredQuota) -> None:
        """A quota declares something else."""
        account = self.accounts[quota.name]
        before = account.declared
        lends = self._lends(quota)
        if (before.max.keys(), before.min.keys(), before.parent) != (quota.max.keys(), quota.min.keys(), quota.parent):
            self._reshaped = True
            account.scaled_min = mask(account.scaled_min, quota.min)
        self._count_dimensions(before, -1)
        self._count_dimensions(quota, +1)
        self._mark(before.parent, quota.parent, quota.name)
        if (account.lends, before.is_parent) != (lends, quota.is_parent) and before.parent == quota.parent:
            account.declare(quota, lends=lends)
            self.rebuild()
        elif before.parent != quota.parent:
            self._detach(account)
            account.declare(quota, lends=lends)
            self._attach(account)
            self._reenter(account)
        else:
            self._amend_amounts(account, quota)

    def retire(self, name: str) -> None:
        """A quota is gone; what was counted for it leaves its parent with it."""
        account = self.accounts.pop(name)
        self._detach(account)
        if account.children:
            self._orphans[name] = account.children
        self._count_dimensions(account.declared, -1)
        self._sheet.release(account.line)
        self.levels.discard(name)

    def rebuild(self) -> None:
        """All sums and shares from what each quota's own pods ask for and use."""
        self._mark(*self.accounts)
        for account in self.accounts.values():
            account.clear_sums()
            account.catch_up()
        for account in self.accounts.values():
            self._enter(account)
        for account in self.accounts.values():
            path = self.path(account.name)
            self._raise_request(path, account.self_request, account.self_np_request)
            self._raise_used(path, account.self_used, account.self_np_used)

    def _amend_amounts(self, account: QuotaInfo, quota: DeclaredQuota) -> None:
        before = account.declared
        account.declare(quota, lends=account.lends)
        limited = capped(account.request, before.max)
        account.floor_request()
        after = account.limited()
        account.ask(after)
        self._raise_guaranteed([account, *self.path(quota.parent)], {})
        self._raise_request(self.path(quota.parent), sub(after, limited), {})

    def _attach(self, account: QuotaInfo) -> None:
        self._paths.clear()
        if (parent := self.accounts.get(account.declared.parent)) is not None:
            parent.children[account.name] = None
            self._mark(parent.name, account.name, parent.declared.parent)
        else:
            self._orphans.setdefault(account.declared.parent, {})[account.name] = None
        self._set_depth(account, parent.depth + 1 if parent else 1)

    def _set_depth(self, account: QuotaInfo, depth: int) -> None:
        account.depth = depth
        for name in account.children:
            self._set_depth(self.accounts[name], depth + 1)

    def _detach(self, account: QuotaInfo) -> None:
        self._paths.clear()
        above = self.path(account.declared.parent)
        if above:
            above[0].children.pop(account.name, None)
            self._mark(above[0].name, above[0].declared.parent)
        elif orphans := self._orphans.get(account.declared.parent):
            orphans.pop(account.name, None)
            if not orphans:
                del self._orphans[account.declared.parent]
        self._raise_request(above, negated(account.limited()), negated(account.np_request))
        self._raise_sums(above, negated(account.used), negated(account.np_used))
        self._raise_guaranteed(above, negated(account.guaranteed))

    def _enter(self, account: QuotaInfo) -> None:
        """A quota without pods: what its min alone asks for and guarantees."""
        if account.name == ROOT:
            return
        before = account.limited()
        account.floor_request()
        after = account.limited()
        account.ask(after)
        self._mark(account.declared.parent)
        above = self.path(account.declared.parent)
        self._raise_guaranteed([account, *above], {})
        self._raise_request(above, sub(after, before), {})

    def _reenter(self, account: QuotaInfo) -> None:
        above = self.path(account.declared.parent)
        account.floor_request()
        account.ask(account.limited())
        self._raise_request(above, account.limited(), account.np_request)
        self._raise_sums(above, account.used, account.np_used)
        self._raise_guaranteed(above, account.guaranteed)
