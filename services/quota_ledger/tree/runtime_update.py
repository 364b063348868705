"""What quotas may use, shared from the root to the leaves: anew at the marked levels and below every child whose runtime moved, and
nowhere else.

Source: spec/quota.md 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.demand_matrix import LARGEST
from services.quota_ledger.runtime.fair_share import Child, scaled_minima, share
from services.quota_ledger.runtime.level_batch import LevelBatch
from services.quota_ledger.runtime.sibling_matrix import MatrixPool
from services.quota_ledger.tree.hierarchy import Hierarchy
from services.quota_ledger.tree.quota_info import QuotaInfo
from services.quota_ledger.tree.runtime_delta import RuntimeDelta
from shared.domain.amounts import Amounts

Int64 = NDArray[np.int64]
Grants = dict[str, tuple[Mapping[str, int], Amounts]]
"""Quota -> its floor at its level, and its runtime."""


class RuntimeUpdate(Hierarchy):
    """The half of a tree that shares."""

    def settle(self) -> int:
        """Share anew wherever something moved.

        Returns:
            How many quotas have another runtime or scaled min.
        """
        if not self._guarantees and not self._reshaped:
            moved = sum(turn.keep() for turn in self._sharing())
            self.levels.clear()
            self._proposal = None
            return moved
        grants = self._proposed_by_level()
        self.put(grants)
        return len(grants)

    def proposed(self) -> RuntimeDelta:
        """What sharing anew would change. No share is another one before it is accepted."""
        if not self._guarantees and not self._reshaped:
            turns = list(self._sharing())
            moved = RuntimeDelta.of_turns(turns)
            self._proposal = (moved, turns)
        else:
            moved = RuntimeDelta.of_grants(self._proposed_by_level(), self.accounts)
        if not moved:
            self.levels.clear()
            self._reshaped = False
            self._proposal = None
        return moved

    def accept(self, moved: RuntimeDelta) -> Mapping[str, Mapping[str, int]]:
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
        """These quotas have these scaled_mins and runtimes, in all resources; every level is as it should be."""
        for name, (floor, runtime) in grants.items():
            if (account := self.accounts.get(name)) is not None:
                self._mark(account.declared.parent)
                account.scaled_min, account.runtime = floor, runtime
        if self._reshaped:
            self._mark(*self._layout.levels)
        self._reshaped = False
        self.levels.clear()

    def _taken(self, moved: RuntimeDelta) -> dict[str, dict[str, int]]:
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

    def _sharing(self) -> Iterator[LevelBatch]:
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

    def _turn(self, pool: MatrixPool, marked: list[int], reached: list[tuple[Int64, Int64]]) -> LevelBatch:
        """Hierarchy that were reached by another capacity, and those that were marked and keep theirs."""
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
        return LevelBatch(pool, np.concatenate(columns), np.concatenate(capacity), np.concatenate(scales))

    def _capacity_of(self, pool: MatrixPool, column: int) -> int | None:
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

    def _share_level(self, parent: QuotaInfo, grants: Grants) -> Iterator[tuple[str, Mapping[str, int], Amounts]]:
        granted = grants.get(parent.name)
        capacity = granted[1] if granted else self.level_capacity(parent.name)
        accounts = self.siblings(parent.name)
        minima = [account.declared.min for account in accounts]
        scaled_mins = scaled_minima(capacity, minima) if self._scales_min else minima
        scaled_mins = [{name: floor[name] for name in own} for own, floor in zip(minima, scaled_mins, strict=True)]
        runtimes: list[Amounts] = [{} for _ in accounts]
        for resource in self.dimensions(parent.name):
            children = [
                Child(
                    account.name,
                    max(floor.get(resource, 0), account.guaranteed.get(resource, 0)),
                    account.asked.get(resource, 0),
                    account.declared.weight.get(resource, 0),
                    account.lends,
                )
                for account, floor in zip(accounts, scaled_mins, strict=True)
            ]
            for runtime, given in zip(runtimes, share(capacity.get(resource, 0), children), strict=True):
                runtime[resource] = given
        for account, floor, runtime in zip(accounts, scaled_mins, runtimes, strict=True):
            if account.runtime != runtime or account.scaled_min != floor:
                yield account.name, floor, runtime
