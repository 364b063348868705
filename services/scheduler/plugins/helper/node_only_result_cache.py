"""Filter results and scores that depend on the node object alone: computed once, then again for changed nodes only.

The part of a pod that such a plugin reads (its tolerations, its selector) is the same for most classes of pods, so the
results are cached by that part and shared by all classes that have it.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.state.pod_equivalence_class import PodClass

Evaluate = Callable[[NodeTable, PodClass, Rows], Int64]
"""Computes filter results or scores of some rows."""

_MOST_KEPT = 1024
_encoder = msgspec.msgpack.Encoder()


class NodeOnlyState(PluginCycleState):
    """A state whose results no placement changes; they are cached with the table, by its version."""

    __slots__ = ("_filter", "_owner", "_reads", "_score", "_table")

    def __init__(
        self,
        owner: object,
        table: NodeTable,
        reads: Callable[[PodClass], object],
        filter_: Evaluate | None,
        score: Evaluate | None,
    ) -> None:
        """Takes the functions of the plugin; None: it does not filter, or does not score.

        Args:
            owner: the plugin.
            reads: the part of a pod that the functions read.
        """
        self._owner = owner
        self._table = table
        self._reads = reads
        self._filter = filter_
        self._score = score

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The filter results, None when all nodes pass."""
        cached = self._cached(0, self._filter, pod_class)
        return cached.values[rows] if cached is not None and cached.any else None

    def score(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The raw scores, None without any."""
        cached = self._cached(1, self._score, pod_class)
        return None if cached is None else cached.values[rows]

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The filter result of one node."""
        cached = self._cached(0, self._filter, pod_class)
        return 0 if cached is None else int(cached.values[row])

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The raw score of one node."""
        cached = self._cached(1, self._score, pod_class)
        return 0 if cached is None else int(cached.values[row])

    def _cached(self, what: int, evaluate: Evaluate | None, pod_class: PodClass) -> "_CachedResults | None":
        if evaluate is None:
            return None
        read: bytes | None = pod_class.cached.get(self._owner)
        if read is None:
            read = pod_class.cached[self._owner] = _encoder.encode(self._reads(pod_class))
        table = self._table
        key = (self._owner, what, read)
        cached: _CachedResults | None = table.cached.get(key)
        if cached is None or cached.version != table.version:
            if cached is None and len(table.cached) >= _MOST_KEPT:
                table.cached.clear()
            cached = table.cached[key] = self._compute(evaluate, pod_class, cached)
        return cached

    def _compute(self, evaluate: Evaluate, pod_class: PodClass, before: "_CachedResults | None") -> "_CachedResults":
        table = self._table
        changed = table.changed_since(before.version) if before and len(before.values) == table.size else None
        if before is None or changed is None or len(changed) > table.size // 4:
            values = evaluate(table, pod_class, slice(0, table.size))
        else:
            values = before.values.copy()
            values[changed] = evaluate(table, pod_class, changed)
        return _CachedResults(table.version, values, bool(values.any()))


class _CachedResults(NamedTuple):
    version: int
    values: Int64
    any: bool
