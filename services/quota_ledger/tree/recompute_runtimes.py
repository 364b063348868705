"""Runtimes, computed from the root to the leaves: at the marked levels and below every child whose runtime changes.

Source: spec/quota.md 3.1; upstream pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from services.quota_ledger.runtime.fair_share import Child, scaled_minima, share
from services.quota_ledger.runtime.fair_share_inputs import LARGEST
from services.quota_ledger.runtime.level_batch import LevelBatch
from services.quota_ledger.runtime.sibling_matrix import MatrixPool
from services.quota_ledger.tree.changed_runtimes_record import RuntimeDelta
from services.quota_ledger.tree.quota_hierarchy import Hierarchy
from services.quota_ledger.tree.quota_info import QuotaInfo
from shared.domain.amounts import Amounts

Int64 = NDArray[np.int64]
Shares = dict[str, tuple[Mapping[str, int], Amounts]]
"""Quota -> its scaled min and its runtime."""


class RuntimeUpdate(Hierarchy):
    """The runtimes of a tree."""

    def refresh_runtimes(self) -> int:
        """Computes and applies the runtimes of all changed levels.

        Returns:
            The number of quotas whose runtime or scaled min changed.
        """
        if not self._guarantees and not self._resources_changed:
            delta = sum(batch.apply() for batch in self._level_batches())
            self.changed_levels.clear()
            self._computed = None
            return delta
        shares = self._compute_by_level()
        self.restore_runtimes(shares)
        return len(shares)

    def compute_delta(self) -> RuntimeDelta:
        """Computes the new runtimes without applying them."""
        if not self._guarantees and not self._resources_changed:
            batches = list(self._level_batches())
            delta = RuntimeDelta.from_batches(batches)
            self._computed = (delta, batches)
        else:
            delta = RuntimeDelta.from_runtimes(self._compute_by_level(), self.quotas)
        if not delta:
            self.changed_levels.clear()
            self._resources_changed = False
            self._computed = None
        return delta

    def apply_delta(self, delta: RuntimeDelta) -> Mapping[str, Mapping[str, int]]:
        """Applies recorded changes; no level is marked any more.

        Returns:
            resource -> quota -> increase of its runtime.
        """
        if self._computed is not None and self._computed[0] == delta:
            for batch in self._computed[1]:
                batch.apply()
            differences = self._computed[0].differences
        else:
            differences = self._apply_recorded(delta)
        if self._resources_changed:
            self._mark_changed(*self._matrices.levels)
        self._resources_changed = False
        self._computed = None
        self.changed_levels.clear()
        return differences

    def restore_runtimes(self, shares: Shares) -> None:
        """Sets scaled min and runtime of quotas in all resources; no level is marked any more."""
        for name, (scaled_min, runtime) in shares.items():
            if (info := self.quotas.get(name)) is not None:
                self._mark_changed(info.declared.parent)
                info.scaled_min, info.runtime = scaled_min, runtime
        if self._resources_changed:
            self._mark_changed(*self._matrices.levels)
        self._resources_changed = False
        self.changed_levels.clear()

    def _apply_recorded(self, delta: RuntimeDelta) -> dict[str, dict[str, int]]:
        """Applies changes as recorded, even if they differ from the computed ones."""
        differences: dict[str, dict[str, int]] = {}
        for resource, shares in delta.runtimes.items():
            found = differences.setdefault(resource, {})
            for name, size in shares.items():
                if (info := self.quotas.get(name)) is not None:
                    found[name] = size - info.runtime.get(resource, 0)
        for resource, names in delta.dropped.items():
            found = differences.setdefault(resource, {})
            for name in names:
                if (info := self.quotas.get(name)) is not None:
                    found[name] = -info.runtime.get(resource, 0)
        for name, runtime, scaled_min in delta.by_quota():
            if (info := self.quotas.get(name)) is not None:
                if info.matrix is not None:
                    info.matrix.write(info, runtime, scaled_min)
                info.runtime = {**info.runtime, **runtime}
                info.scaled_min = {**info.scaled_min, **scaled_min}
        for resource, names in delta.dropped.items():
            for name in names:
                if (info := self.quotas.get(name)) is not None:
                    info.runtime = {key: size for key, size in info.runtime.items() if key != resource}
        return differences

    def _level_batches(self) -> Iterator[LevelBatch]:
        """Yields batches of levels to compute, parents before children.

        A level is computed where it is marked, or in the resources in which its parent's runtime changes.
        """
        self._build_matrices()
        marked: dict[int, dict[int, list[int]]] = {}
        for name in self.changed_levels:
            if (level := self._matrices.levels.get(name)) is not None and level.columns:
                pools = marked.setdefault(self.quotas[name].depth, {})
                pools.setdefault(level.pool.number, []).extend(level.columns.values())
        reached: dict[int, list[tuple[Int64, Int64]]] = {}
        depth = 0
        while marked or reached:
            below: dict[int, list[tuple[Int64, Int64]]] = {}
            here = marked.pop(depth, {})
            for number in sorted(here.keys() | reached.keys()):
                batch = self._level_batch(self._matrices.pools[number], here.get(number, []), reached.get(number, []))
                for under, columns, capacity in batch.below():
                    below.setdefault(under, []).append((columns, capacity))
                yield batch
            reached, depth = below, depth + 1

    def _level_batch(self, pool: MatrixPool, marked: list[int], reached: list[tuple[Int64, Int64]]) -> LevelBatch:
        """Computes levels whose capacity changes, and marked ones whose capacity stays."""
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

    def _build_matrices(self) -> None:
        found = []
        for name in self._without_matrix:
            info = self.quotas.get(name)
            if info is not None and info.children and (children := self.sharing_children(name)):
                found.append((info, children, self.level_resources(name)))
        self._without_matrix.clear()
        if found:
            self._matrices.add(found)

    def _compute_by_level(self) -> Shares:
        shares: Shares = {}
        by_depth: dict[int, dict[str, None]] = {}
        for name in self.changed_levels:
            if (info := self.quotas.get(name)) is not None:
                by_depth.setdefault(info.depth, {})[name] = None
        while by_depth:
            depth = min(by_depth)
            below = by_depth.setdefault(depth + 1, {})
            for parent in sorted(by_depth.pop(depth)):
                for name, scaled_min, runtime in self._share_level(self.quotas[parent], shares):
                    shares[name] = (scaled_min, runtime)
                    if self.quotas[name].children:
                        below[name] = None
            if not below:
                del by_depth[depth + 1]
        return shares

    def _share_level(self, parent: QuotaInfo, shares: Shares) -> Iterator[tuple[str, Mapping[str, int], Amounts]]:
        parent_share = shares.get(parent.name)
        capacity = parent_share[1] if parent_share else self.level_capacity(parent.name)
        quotas = self.sharing_children(parent.name)
        minima = [info.declared.min for info in quotas]
        scaled_mins = scaled_minima(capacity, minima) if self._scales_min else minima
        scaled_mins = [
            {name: scaled_min[name] for name in own} for own, scaled_min in zip(minima, scaled_mins, strict=True)
        ]
        runtimes: list[Amounts] = [{} for _ in quotas]
        for resource in self.level_resources(parent.name):
            children = [
                Child(
                    info.name,
                    max(scaled_min.get(resource, 0), info.guaranteed.get(resource, 0)),
                    info.demand.get(resource, 0),
                    info.declared.weight.get(resource, 0),
                    info.lends,
                )
                for info, scaled_min in zip(quotas, scaled_mins, strict=True)
            ]
            for runtime, allocation in zip(runtimes, share(capacity.get(resource, 0), children), strict=True):
                runtime[resource] = allocation
        for info, scaled_min, runtime in zip(quotas, scaled_mins, runtimes, strict=True):
            if info.runtime != runtime or info.scaled_min != scaled_min:
                yield info.name, scaled_min, runtime
