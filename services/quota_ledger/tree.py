"""One tree of quotas: sums from the leaves to the root, shares from the root to the leaves.

A change of demand moves sums along one path, by the difference; it marks the levels on it. `settle` then shares anew at the marked levels
and below every child whose runtime or own level moved, and nowhere else.

Source: spec/quota.md 2.3, 2.5, 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.account import Account
from services.quota_ledger.moved import Moved
from services.quota_ledger.sharing import Child, scaled_minima, share
from services.quota_ledger.siblings import LARGEST, Layout, Pool
from services.quota_ledger.switches import EXACT, Switches
from services.quota_ledger.turn import Turn
from shared.domain.amounts import Amounts, add_clamped, capped, largest, mask, negated, raise_clamped, sub
from shared.kube.elastic_quota import RESERVED, ROOT, DeclaredQuota

Int64 = NDArray[np.int64]
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
        self._layout = Layout()
        self._bare: dict[str, None] = {}  # parents whose children are to be laid out
        self._proposal: tuple[Moved, list[Turn]] | None = None
        self._paths: dict[str, tuple[Account, ...]] = {}
        self._reshaped = False  # resources came or went, so shares may have to lose some

    def path(self, name: str) -> tuple[Account, ...]:
        """From a quota to the root, both included; shorter when a parent is unknown."""
        found = self._paths.get(name)
        if found is None:
            path, above = [], name
            while (account := self.accounts.get(above)) is not None:
                path.append(account)
                above = account.declared.parent
            found = self._paths[name] = tuple(path)
        return found

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
            if self._switches == EXACT:
                account.scaled_min = mask(account.scaled_min, quota.min)
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
        if np_delta:
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
        if self._is_exact and not self._reshaped:
            moved = sum(turn.keep() for turn in self._sharing())
            self.levels.clear()
            self._proposal = None
            return moved
        grants = self._proposed_by_level()
        self.put(grants)
        return len(grants)

    def proposed(self) -> Moved:
        """What sharing anew would change. No share is another one before it is accepted."""
        if self._is_exact and not self._reshaped:
            turns = list(self._sharing())
            moved = Moved.of_turns(turns)
            self._proposal = (moved, turns)
        else:
            moved = Moved.of_grants(self._proposed_by_level(), self.accounts)
        if not moved:
            self.levels.clear()
            self._reshaped = False
            self._proposal = None
        return moved

    def accept(self, moved: Moved) -> Mapping[str, Mapping[str, int]]:
        """These are the shares now; every level is as it should be.

        Returns:
            resource -> quota -> by how much its runtime is another one.
        """
        if self._proposal is not None and self._proposal[0] == moved:
            for turn in self._proposal[1]:
                turn.keep()
            differences = self._proposal[0].differences
        else:
            differences = self._taken(moved)
        if self._reshaped:
            self._mark(*self._layout.levels)
        self._reshaped = False
        self._proposal = None
        self.levels.clear()
        return differences

    def put(self, grants: Grants) -> None:
        """These quotas have these floors and runtimes, in all resources; every level is as it should be."""
        for name, (floor, runtime) in grants.items():
            if (account := self.accounts.get(name)) is not None:
                self._mark(account.declared.parent)
                account.scaled_min, account.runtime = floor, runtime
        if self._reshaped:
            self._mark(*self._layout.levels)
        self._reshaped = False
        self.levels.clear()

    def _taken(self, moved: Moved) -> dict[str, dict[str, int]]:
        """As recorded, whatever we would have come to."""
        differences: dict[str, dict[str, int]] = {}
        for resource, shares in moved.runtimes.items():
            found = differences.setdefault(resource, {})
            for name, size in shares.items():
                if (account := self.accounts.get(name)) is not None:
                    found[name] = size - account.runtime.get(resource, 0)
        for resource, names in moved.dropped.items():
            found = differences.setdefault(resource, {})
            for name in names:
                if (account := self.accounts.get(name)) is not None:
                    found[name] = -account.runtime.get(resource, 0)
        for name, runtime, floor in moved.of_accounts():
            if (account := self.accounts.get(name)) is not None:
                if account.laid_out is not None:
                    account.laid_out.put(account, runtime, floor)
                account.runtime = {**account.runtime, **runtime}
                account.scaled_min = {**account.scaled_min, **floor}
        for resource, names in moved.dropped.items():
            for name in names:
                if (account := self.accounts.get(name)) is not None:
                    account.runtime = {key: size for key, size in account.runtime.items() if key != resource}
        return differences

    def _sharing(self) -> Iterator[Turn]:
        """Every level and resource whose shares are others now, parents before children, many at once.

        A level is shared anew where it was marked, or where its parent has another runtime in that resource.
        """
        self._lay_out()
        marked: dict[int, dict[int, list[int]]] = {}
        for name in self.levels:
            if (level := self._layout.levels.get(name)) is not None:
                pools = marked.setdefault(self.accounts[name].depth, {})
                pools.setdefault(level.pool.number, []).extend(level.columns.values())
        reached: dict[int, list[tuple[Int64, Int64]]] = {}
        depth = 0
        while marked or reached:
            below: dict[int, list[tuple[Int64, Int64]]] = {}
            here = marked.pop(depth, {})
            for number in sorted(here.keys() | reached.keys()):
                turn = self._turn(self._layout.pools[number], here.get(number, []), reached.get(number, []))
                for under, columns, capacity in turn.below():
                    below.setdefault(under, []).append((columns, capacity))
                yield turn
            reached, depth = below, depth + 1

    def _turn(self, pool: Pool, marked: list[int], reached: list[tuple[Int64, Int64]]) -> Turn:
        """Levels that were reached by another capacity, and those that were marked and keep theirs."""
        columns = [each for each, _ in reached]
        capacity = [each for _, each in reached]
        scales = [np.full(len(each), self._scales_min) for each in columns]
        rest = np.array(marked, np.int64)
        if reached and marked:
            has_another = np.zeros(len(pool.first), np.bool_)
            has_another[np.concatenate(columns)] = True
            rest = rest[~has_another[rest]]
        if len(rest):
            own = [self._capacity_of(pool, column) for column in rest.tolist()]
            columns.append(rest)
            capacity.append(np.array([max(-LARGEST, min(size or 0, LARGEST)) for size in own], np.int64))
            scales.append(np.array([self._scales_min and size is not None for size in own], np.bool_))
        return Turn(pool, np.concatenate(columns), np.concatenate(capacity), np.concatenate(scales))

    def _capacity_of(self, pool: Pool, column: int) -> int | None:
        level = pool.levels[column]
        return self.level_capacity(level.parent.name).get(pool.resources[column]) if level else None

    def _lay_out(self) -> None:
        found = []
        for name in self._bare:
            account = self.accounts.get(name)
            if account is not None and account.children and (children := self.siblings(name)):
                found.append((account, children, self.dimensions(name)))
        self._bare.clear()
        if found:
            self._layout.add(found)

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
        if self._switches == EXACT:
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
        self._paths.clear()
        if (parent := self.accounts.get(account.declared.parent)) is not None:
            parent.children[account.name] = None
            self._mark(parent.name, account.name, parent.declared.parent)
        self._set_depth(account, parent.depth + 1 if parent else 1)

    def _set_depth(self, account: Account, depth: int) -> None:
        account.depth = depth
        for name in account.children:
            self._set_depth(self.accounts[name], depth + 1)

    def _detach(self, account: Account) -> None:
        self._paths.clear()
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

    def _raise_request(self, path: Sequence[Account], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
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

    def _raise_used(self, path: Sequence[Account], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        self._raise_sums(path, delta, np_delta)
        if path and self._guarantees:
            path[0].allocated = add_clamped(path[0].allocated, mask(delta, self._dimensions))
            self._raise_guaranteed(path, {})
        if path and path[0].name in RESERVED:
            self._recount_capacity()

    def _raise_sums(self, path: Sequence[Account], delta: Mapping[str, int], np_delta: Mapping[str, int]) -> None:
        changes = tuple(delta.items())
        for account in path:
            used = account.used
            for name, size in changes:
                after = used.get(name, 0) + size
                used[name] = after if after > 0 else 0  # noqa: FURB136 (half the time of max, for every account above a pod)
            if np_delta:
                raise_clamped(account.np_used, np_delta)

    def _raise_guaranteed(self, path: Sequence[Account], delta: Mapping[str, int]) -> None:
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
        self._proposal = None
        for name in names:
            self._layout.drop(name)
            self._bare[name] = None

    def _asked(self, account: Account) -> None:
        self.levels.add(account.declared.parent)
        self._proposal = None
        if account.laid_out is not None:
            account.laid_out.ask(account)


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
