"""One tree of quotas: sums from the leaves to the root, shares from the root to the leaves.

A change of demand moves sums along one path, by the difference; it marks the levels on it. `settle` then shares anew at the marked levels
and below every child whose runtime or own level moved, and nowhere else.

Source: spec/quota.md 2.3, 2.5, 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Iterator, Mapping, Sequence

from services.quota_ledger.account import Account
from services.quota_ledger.sharing import Child, scaled_minima, share
from services.quota_ledger.siblings import Pool, Siblings
from services.quota_ledger.switches import EXACT, Switches
from services.quota_ledger.turn import Turn
from shared.domain.amounts import Amounts, add_clamped, capped, largest, mask, negated, raise_clamped, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota

Grants = dict[str, tuple[Mapping[str, int], Amounts]]
"""Quota -> its floor at its level, and its runtime."""


class Tree:
    """The quotas of one tree id, their sums and their runtimes.

    Attributes:
        accounts: by name, the root included.
        total: what the tree may share, with what the reserved groups use.
        capacity: `total` without that; what the first level shares.
        levels: names of parents at whose level something moved since `settle`.
    """

    def __init__(self, switches: Switches, *, scales_min: bool = True, guarantees: bool = False) -> None:
        self._switches = switches
        self._scales_min = scales_min
        self._guarantees = guarantees
        self.total: Amounts = {}
        self.capacity: Amounts = {}
        root = DeclaredQuota(name=ROOT, parent="", is_parent=True, lends=False)
        self.accounts: dict[str, Account] = {ROOT: Account(root, lends=False)}
        self._dimensions: dict[str, int] = {}
        self.levels: set[str] = set()
        self._is_exact = switches == EXACT and not guarantees
        self._laid_out: dict[str, Siblings] = {}
        self._pools: dict[int, Pool] = {}
        self._reshaped = False  # resources came or went, so shares may have to lose some

    def path(self, name: str) -> list[Account]:
        """From a quota to the root, both included; shorter when a parent is unknown."""
        path = []
        while (account := self.accounts.get(name)) is not None:
            path.append(account)
            name = account.declared.parent
        return path

    def set_total(self, total: Amounts) -> None:
        """The tree's total is another one."""
        self.total = total
        self._recount_capacity()

    def declare(self, quota: DeclaredQuota) -> None:
        """A quota is new. Its children may be there already."""
        account = Account(quota, lends=self._lends(quota))
        self.accounts[quota.name] = account
        self._count_dimensions(quota, +1)
        account.children = dict.fromkeys(
            other.name for other in self.accounts.values() if other.declared.parent == quota.name
        )
        self._attach(account)
        if account.children and not self._switches.frozen_min_ask:
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
        self._count_dimensions(before, -1)
        self._count_dimensions(quota, +1)
        self._mark(before.parent, quota.parent, quota.name)
        if (account.lends, before.is_parent) != (lends, quota.is_parent) and before.parent == quota.parent:
            account.declared, account.lends = quota, lends
            self.rebuild()
        elif before.parent != quota.parent:
            self._detach(account)
            account.declared, account.lends = quota, lends
            if self._guarantees and self._switches.unlimited_delete_delta:
                account.allocated = dict(account.used)
                account.guaranteed = largest(account.allocated, quota.min)
            self._attach(account)
            self._reenter(account)
        else:
            self._amend_amounts(account, quota)

    def retire(self, name: str) -> None:
        """A quota is gone; what was counted for it leaves its parent with it."""
        account = self.accounts.pop(name)
        self._detach(account)
        self._count_dimensions(account.declared, -1)
        self.levels.discard(name)

    def add_request(self, name: str, delta: Amounts, np_delta: Amounts) -> None:
        """Pods of a quota ask for more (or less)."""
        if (account := self.accounts.get(name)) is None:
            return
        account.self_request = add_clamped(account.self_request, delta)
        account.self_np_request = add_clamped(account.self_np_request, np_delta)
        self._raise_request(self.path(name), delta, np_delta)

    def add_used(self, name: str, delta: Amounts, np_delta: Amounts) -> None:
        """Pods of a quota use more (or less)."""
        if (account := self.accounts.get(name)) is None:
            return
        raise_clamped(account.self_used, delta)
        raise_clamped(account.self_np_used, np_delta)
        self._raise_used(self.path(name), delta, np_delta)

    def rebuild(self) -> None:
        """All sums and shares from what each quota's own pods ask for and use."""
        self._mark(*self.accounts)
        allocated = self.accounts[ROOT].allocated
        for account in self.accounts.values():
            account.clear_sums()
            account.catch_up()
            if self._switches.frozen_min_ask:
                account.asked, account.runtime, account.scaled_min = {}, {}, account.declared.min
        if self._switches.unlimited_delete_delta:
            self.accounts[ROOT].allocated = allocated  # upstream's goes on from what it was
        for account in self.accounts.values():
            self._enter(account)
        for account in self.accounts.values():
            path = self.path(account.name)
            self._raise_request(path, account.self_request, account.self_np_request)
            self._raise_used(path, account.self_used, account.self_np_used)
            if account.name in RESERVED and self._switches.default_group_competes:
                self._leave_out(account)

    def settle(self) -> int:
        """Share anew wherever something moved.

        Returns:
            How many quotas have another runtime or scaled min.
        """
        if not self._is_exact or self._reshaped:
            grants = self.proposed()
            self.accept(grants)
            return len(grants)
        moved = sum(turn.keep() for turn in self._sharing())
        self.levels.clear()
        return moved

    def proposed(self) -> Grants:
        """What sharing anew would change. No share is another one before it is accepted."""
        grants = self._proposed_by_resource() if self._is_exact and not self._reshaped else self._proposed_by_level()
        if not grants:
            self.levels.clear()
            self._reshaped = False
        return grants

    def _proposed_by_resource(self) -> Grants:
        grants: dict[str, tuple[Amounts, Amounts]] = {}
        for turn in self._sharing():
            for at, index, account in turn.found():
                resource = turn.resources[at]
                floor, runtime = grants.get(account.name) or (dict(account.scaled_min), dict(account.runtime))
                grants[account.name] = floor, runtime
                runtime[resource] = int(turn.runtimes[at, index])
                if resource in account.declared.min:
                    floor[resource] = int(turn.floors[at, index])
        return dict(grants)

    def _sharing(self) -> Iterator[Turn]:
        """Every level and resource whose shares are others now, parents before children, many at once.

        A level is shared anew where it was marked, or where its parent has another runtime in that resource.
        """
        due: dict[int, dict[str, dict[str, int | None]]] = {}
        for name in self.levels:
            account = self.accounts.get(name)
            if account is not None and account.children:
                due.setdefault(account.depth, {})[name] = {}
        while due:
            depth = min(due)
            below = due.setdefault(depth + 1, {})
            turns: dict[int, Turn] = {}
            for parent, moved in due.pop(depth).items():
                siblings = self._laid_out.get(parent) or self._lay_out(parent)
                turn = turns.get(siblings.pool.width)
                if turn is None:
                    turn = turns[siblings.pool.width] = Turn(siblings.pool)
                marked = parent in self.levels
                turn.add(
                    siblings, self._capacities(parent, siblings, moved) if marked else moved, scales=self._scales_min
                )
            for turn in turns.values():
                turn.share()
                for at, index, account in turn.parents():
                    name, capacity = account.declared.name, int(turn.runtimes[at, index])
                    below.setdefault(name, {})[turn.resources[at]] = capacity
                yield turn
            if not below:
                del due[depth + 1]

    def _capacities(self, parent: str, siblings: Siblings, moved: Mapping[str, int | None]) -> Mapping[str, int | None]:
        own = self.level_capacity(parent)
        return {resource: moved[resource] if resource in moved else own.get(resource) for resource in siblings.rows}

    def _lay_out(self, parent: str) -> Siblings:
        found = Siblings(self.siblings(parent), self.dimensions(parent), self._pools)
        self._laid_out[parent] = found
        return found

    def _proposed_by_level(self) -> Grants:
        grants: Grants = {}
        by_depth: dict[int, dict[str, None]] = {}
        for name in self.levels:
            if (account := self.accounts.get(name)) is not None:
                by_depth.setdefault(account.depth, {})[name] = None
        while by_depth:
            depth = min(by_depth)
            below = by_depth.setdefault(depth + 1, {})
            for parent in sorted(by_depth.pop(depth)):
                for name, floor, runtime in self._share_level(self.accounts[parent], grants):
                    grants[name] = (floor, runtime)
                    if self.accounts[name].children:
                        below[name] = None
            if not below:
                del by_depth[depth + 1]
        return grants

    def accept(self, grants: Mapping[str, tuple[Mapping[str, int], Amounts]]) -> None:
        """These are the shares now; every level is as it should be."""
        for name, (floor, runtime) in grants.items():
            if (account := self.accounts.get(name)) is not None:
                account.catch_up()
                account.scaled_min, account.runtime = floor, runtime
                if not self._reshaped and (siblings := self._laid_out.get(account.declared.parent)) is not None:
                    siblings.take(account)
        if self._reshaped:
            self._mark(*self._laid_out)
        self._reshaped = False
        self.levels.clear()

    def siblings(self, parent: str) -> list[Account]:
        """The quotas that share what a parent may use; the reserved groups are none of them."""
        return [
            self.accounts[name]
            for name in self.accounts[parent].children
            if name not in RESERVED or (self._switches.default_group_competes and self.accounts[name].asked)
        ]

    def dimensions(self, parent: str) -> list[str]:
        """The resources that are shared at a level."""
        return sorted(self._dimensions if parent == ROOT else self.accounts[parent].declared.max)

    def level_capacity(self, parent: str) -> Mapping[str, int]:
        """What a level shares."""
        return self.capacity if parent == ROOT else self.accounts[parent].runtime

    def _share_level(self, parent: Account, grants: Grants) -> Iterator[tuple[str, Mapping[str, int], Amounts]]:
        granted = grants.get(parent.name)
        capacity = granted[1] if granted else self.level_capacity(parent.name)
        accounts = self.siblings(parent.name)
        minima = [account.declared.min if account.name not in RESERVED else {} for account in accounts]
        floors = scaled_minima(capacity, minima, self._switches) if self._scales_min else minima
        if self._is_exact:
            floors = [
                {name: floor[name] for name in account.declared.min}
                for account, floor in zip(accounts, floors, strict=True)
            ]
        if self._switches.frozen_min_ask:
            accounts, floors = _known_to_upstream(accounts, floors)
        runtimes: list[Amounts] = [{} for _ in accounts]
        for resource in self.dimensions(parent.name):
            children = [
                Child(
                    account.name,
                    max(floor.get(resource, 0), account.guaranteed.get(resource, 0)),
                    (account.asked or {}).get(resource, 0),
                    account.declared.weight.get(resource, 0),
                    account.lends,
                )
                for account, floor in zip(accounts, floors, strict=True)
            ]
            for runtime, given in zip(
                runtimes, share(capacity.get(resource, 0), children, self._switches), strict=True
            ):
                runtime[resource] = given
        for account, floor, runtime in zip(accounts, floors, runtimes, strict=True):
            if account.name not in RESERVED and (account.runtime != runtime or account.scaled_min != floor):
                yield account.name, floor, runtime

    def _lends(self, quota: DeclaredQuota) -> bool:
        return quota.lends and not self._guarantees

    def _amend_amounts(self, account: Account, quota: DeclaredQuota) -> None:
        before, account.declared = account.declared, quota
        lim, asked = capped(account.request, before.max), account.asked
        if before.max != quota.max:
            asked = account.limited()
        account.floor_request()
        after = account.limited()
        account.asked = asked if self._switches.frozen_min_ask else after
        self._raise_guaranteed([account, *self.path(quota.parent)], {})
        self._raise_request(self.path(quota.parent), sub(after, lim), {})

    def _attach(self, account: Account) -> None:
        if (parent := self.accounts.get(account.declared.parent)) is not None:
            parent.children[account.name] = None
            self._mark(parent.name, account.name, parent.declared.parent)
        self._set_depth(account, parent.depth + 1 if parent else 1)

    def _set_depth(self, account: Account, depth: int) -> None:
        account.depth = depth
        for name in account.children:
            self._set_depth(self.accounts[name], depth + 1)

    def _detach(self, account: Account) -> None:
        above = self.path(account.declared.parent)
        if above:
            above[0].children.pop(account.name, None)
            self._mark(above[0].name, above[0].declared.parent)
        whole = self._switches.unlimited_delete_delta
        self._raise_request(
            above, negated(account.request if whole else account.limited()), negated(account.np_request)
        )
        self._raise_sums(above, negated(account.used), negated(account.np_used))
        self._raise_guaranteed(above, negated(account.used if whole else account.guaranteed))

    def _enter(self, account: Account) -> None:
        """A quota without pods: what its min alone asks for and guarantees."""
        if account.name == ROOT:
            return
        before = account.limited()
        account.floor_request()
        after = account.limited()
        account.asked = after
        if self._switches.frozen_min_ask:
            account.asked = {} if account.declared.parent in self.accounts else None
        self._mark(account.declared.parent)
        above = self.path(account.declared.parent)
        self._raise_guaranteed([account, *above], {})
        self._raise_request(above, sub(after, before), {})

    def _leave_out(self, account: Account) -> None:
        """Upstream's rebuild keeps the reserved groups out of the first level, until their demand changes."""
        root = self.accounts[ROOT]
        root.request = add_clamped(root.request, sub(account.request, account.limited()))
        root.allocated = add_clamped(root.allocated, negated(account.guaranteed))
        account.asked = {}

    def _reenter(self, account: Account) -> None:
        above = self.path(account.declared.parent)
        account.floor_request()
        account.asked = account.limited()
        self._raise_request(above, account.limited(), account.np_request)
        self._raise_sums(above, account.used, account.np_used)
        self._raise_guaranteed(above, account.guaranteed)

    def _raise_request(self, path: list[Account], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        for account in path:
            account.np_request = add_clamped(account.np_request, np_delta)
            if account.name == ROOT:
                account.request = add_clamped(account.request, delta)
                break
            before = account.limited()
            account.child_request = add_clamped(account.child_request, delta)
            account.floor_request()
            after = account.limited()
            if account.asked != after:
                account.asked = after
                self._asked(account)
            delta = sub(after, before)

    def _raise_used(self, path: list[Account], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        self._raise_sums(path, delta, np_delta)
        if path and self._guarantees:
            path[0].allocated = add_clamped(path[0].allocated, mask(delta, self._dimensions))
            self._raise_guaranteed(path, {})
        if path and path[0].name in RESERVED:
            self._recount_capacity()

    def _raise_sums(self, path: list[Account], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        for account in path:
            raise_clamped(account.used, delta)
            if np_delta:
                raise_clamped(account.np_used, np_delta)

    def _raise_guaranteed(self, path: list[Account], delta: Mapping[str, int]) -> None:
        """The first of the path has `delta` more allocated below it; each is guaranteed that, and at least its min."""
        if not self._guarantees:
            return
        for account in path:
            account.allocated = add_clamped(account.allocated, delta)
            if account.name == ROOT:
                break
            before = account.guaranteed
            account.guaranteed = largest(account.allocated, account.declared.min)
            if account.guaranteed != before:
                self._mark(account.declared.parent)
            delta = sub(account.guaranteed, before)

    def _recount_capacity(self) -> None:
        capacity = dict(self.total)
        for name in RESERVED:
            if name in self.accounts:
                capacity = sub(capacity, self.accounts[name].used)
        for resource in self.capacity:
            capacity.setdefault(resource, 0)  # a resource that the tree once had stays one that min is scaled in
        if capacity != self.capacity:
            self.capacity = capacity
            self._mark(ROOT)

    def _count_dimensions(self, quota: DeclaredQuota, step: int) -> None:
        if quota.name == ROOT or quota.name in RESERVED:
            return
        for resource in quota.max:
            count = self._dimensions.get(resource, 0) + step
            if count:
                self._dimensions[resource] = count
            else:
                self._dimensions.pop(resource, None)
                self._reshaped = True
            if count <= 1:
                self._mark(ROOT)

    def _mark(self, *names: str) -> None:
        self.levels.update(names)
        for name in names:
            if (siblings := self._laid_out.pop(name, None)) is not None:
                siblings.release()

    def _asked(self, account: Account) -> None:
        parent = account.declared.parent
        self.levels.add(parent)
        if (siblings := self._laid_out.get(parent)) is not None:
            siblings.ask(account)


def _known_to_upstream(
    accounts: list[Account], floors: Sequence[Mapping[str, int]]
) -> tuple[list[Account], list[Mapping[str, int]]]:
    """Without the quotas that came before their parent; such a one is known once its scaled min or its demand changes."""
    known: list[Account] = []
    of_known: list[Mapping[str, int]] = []
    for account, floor in zip(accounts, floors, strict=True):
        if account.asked is None and floor != account.scaled_min:
            account.asked = account.limited()
        if account.asked is not None:
            known.append(account)
            of_known.append(floor)
    return known, of_known
