"""One tree of quotas as upstream keeps it: changed quota by quota, shared from the root to the leaves.

Source: spec/quota.md 2.5, 3.1, 3.4.
"""

from collections.abc import Iterator

from cli.parity.upstream.quota.aggregation import Aggregation
from cli.parity.upstream.quota.fair_share import Child, scaled_minima, share
from cli.parity.upstream.quota.quirks import Quirk
from cli.parity.upstream.quota.quota_info import QuotaInfo
from shared.domain.amounts import Amounts, add_clamped, largest, mask, negated, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota


class QuotaTree(Aggregation):
    """The quotas of one tree id."""

    def declare(self, quota: DeclaredQuota) -> None:
        """Adds a quota. Its children may be there already."""
        account = QuotaInfo(quota, lends=self._lends(quota))
        self.accounts[quota.name] = account
        account.children = {name: None for name, each in self.accounts.items() if each.declared.parent == quota.name}
        self._attach(account)
        if account.children and Quirk.STALE_DEMAND not in self.quirks:
            self.rebuild()
        else:
            self._enter(account)

    def amend(self, quota: DeclaredQuota) -> None:
        """Changes a quota's declaration."""
        account = self.accounts[quota.name]
        before, lends = account.declared, self._lends(quota)
        if Quirk.STALE_DEMAND not in self.quirks:
            account.scaled_min = mask(account.scaled_min, quota.min)
        if before.parent != quota.parent:
            self._detach(account)
            account.declared, account.lends = quota, lends
            if self.guarantees and Quirk.WHOLE_DELTA in self.quirks:
                account.allocated = dict(account.used)
                account.guaranteed = largest(account.allocated, quota.min)
            self._attach(account)
            self._reenter(account)
        elif (account.lends, before.is_parent) != (lends, quota.is_parent):
            account.declared, account.lends = quota, lends
            self.rebuild()
        else:
            self._amend_amounts(account, quota)

    def retire(self, name: str) -> None:
        """Removes a quota and its numbers from those of its parent."""
        account = self.accounts.pop(name)
        self._detach(account)

    def rebuild(self) -> None:
        """Recomputes all sums from the demand and use of each quota's own pods."""
        allocated = self.accounts[ROOT].allocated
        for account in self.accounts.values():
            account.clear_sums()
            if Quirk.STALE_DEMAND in self.quirks:
                account.runtime, account.scaled_min = {}, dict(account.declared.min)
        if Quirk.WHOLE_DELTA in self.quirks:
            self.accounts[ROOT].allocated = allocated
        for account in self.accounts.values():
            self._enter(account)
        for account in self.accounts.values():
            path = self.path(account.name)
            self.raise_request(path, account.self_request, account.self_np_request)
            self.raise_used(path, account.self_used, account.self_np_used)
            if account.name in RESERVED and Quirk.GROUPS_COMPETE in self.quirks:
                self._leave_out(account)

    def settle(self) -> None:
        """RuntimeUpdate every level, parents before children."""
        level = [account.name for account in self.accounts.values() if account.declared.parent not in self.accounts]
        while level:
            below: list[str] = []
            for parent in level:
                self._share_level(parent)
                below += self.accounts[parent].children
            level = below

    def _share_level(self, parent: str) -> None:
        capacity = self.capacity if parent == ROOT else self.accounts[parent].runtime
        members = list(self._members(parent))
        minima = [{} if account.name in RESERVED else account.declared.min for account in members]
        floors = scaled_minima(capacity, minima, self.quirks) if self.scales_min else [dict(each) for each in minima]
        is_stale = Quirk.STALE_DEMAND in self.quirks
        known: list[tuple[QuotaInfo, Amounts]] = []
        for account, floor in zip(members, floors, strict=True):
            if account.demand is None and floor != account.scaled_min:
                self.notify(account, account.limited())  # another min in force is a notification too
            if account.demand is not None:
                known.append((account, floor))
        runtimes: dict[str, Amounts] = {account.name: {} for account, _ in known}
        for resource in sorted(self.shared_by(parent)):
            children = [_child(account, floor, resource) for account, floor in known]
            for name, given in share(capacity.get(resource, 0), children, self.quirks).items():
                runtimes[name][resource] = given
        for account, floor in known:
            if account.name not in RESERVED:
                account.scaled_min = floor if is_stale else mask(floor, account.declared.min)
                account.runtime = mask(runtimes[account.name], account.shared) if is_stale else runtimes[account.name]

    def _members(self, parent: str) -> Iterator[QuotaInfo]:
        """Yields the quotas that share a level; by a quirk a reserved group, too, once its demand has changed."""
        for name in self.accounts[parent].children:
            account = self.accounts[name]
            if name not in RESERVED or (Quirk.GROUPS_COMPETE in self.quirks and account.demand):
                yield account

    def _lends(self, quota: DeclaredQuota) -> bool:
        return quota.lends and not self.guarantees

    def _amend_amounts(self, account: QuotaInfo, quota: DeclaredQuota) -> None:
        before, known = account.declared, account.demand
        limited = account.limited()
        account.declared = quota
        if before.max != quota.max:
            known = account.limited()
        account.floor_request()
        self.notify(account, known if Quirk.STALE_DEMAND in self.quirks else account.limited())
        self.raise_guaranteed([account, *self.path(quota.parent)], {})
        self.raise_request(self.path(quota.parent), sub(account.limited(), limited), {})

    def _attach(self, account: QuotaInfo) -> None:
        if (parent := self.accounts.get(account.declared.parent)) is not None:
            parent.children[account.name] = None

    def _detach(self, account: QuotaInfo) -> None:
        above = self.path(account.declared.parent)
        if above:
            above[0].children.pop(account.name, None)
        whole = Quirk.WHOLE_DELTA in self.quirks
        self.raise_request(above, negated(account.request if whole else account.limited()), negated(account.np_request))
        self.raise_sums(above, negated(account.used), negated(account.np_used))
        self.raise_guaranteed(above, negated(account.used if whole else account.guaranteed))

    def _enter(self, account: QuotaInfo) -> None:
        """Counts a quota without pods: the demand and the guarantee of its min alone."""
        if account.name == ROOT:
            return
        before = account.limited()
        account.floor_request()
        after = account.limited()
        self._notify_of_min(account)
        above = self.path(account.declared.parent)
        self.raise_guaranteed([account, *above], {})
        self.raise_request(above, sub(after, before), {})

    def _reenter(self, account: QuotaInfo) -> None:
        """Counts a quota with all that is below it under another parent."""
        above = self.path(account.declared.parent)
        account.floor_request()
        if any(account.child_request.values()):
            self.notify(account, account.limited())
        else:
            self._notify_of_min(account)
        self.raise_request(above, account.limited(), account.np_request)
        self.raise_sums(above, account.used, account.np_used)
        self.raise_guaranteed(above, account.guaranteed)

    def _notify_of_min(self, account: QuotaInfo) -> None:
        """Notifies the level of a quota that is new there.

        By a quirk not of its demand, and not at all before its parent is there.
        """
        if Quirk.STALE_DEMAND not in self.quirks:
            self.notify(account, account.limited())
        else:
            self.notify(account, {} if account.declared.parent in self.accounts else None)

    def _leave_out(self, account: QuotaInfo) -> None:
        """Keeps a reserved group out of the first level after a rebuild, until its demand changes."""
        root = self.accounts[ROOT]
        root.request = add_clamped(root.request, sub(account.request, account.limited()))
        root.allocated = add_clamped(root.allocated, negated(account.guaranteed))
        account.demand = {}


def _child(account: QuotaInfo, floor: Amounts, resource: str) -> Child:
    return Child(
        account.name,
        max(floor.get(resource, 0), account.guaranteed.get(resource, 0)),
        (account.demand or {}).get(resource, 0),
        account.declared.weight.get(resource, 0),
        account.lends,
    )
