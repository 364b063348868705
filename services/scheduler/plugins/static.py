"""Verdicts and scores that depend on the node object alone: worked out once a class of pods, then for changed nodes only."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.ask import PodAsk
from services.scheduler.framework import Rows
from services.scheduler.nodes import NodeTable
from services.scheduler.pods import PodFacts

Int64 = NDArray[np.int64]
Judge = Callable[[NodeTable, PodAsk, Rows], Int64]
"""Works verdicts or scores out for some rows."""


class StaticTrial:
    """A trial whose answers no placement changes. Remembers them in `ask.memo`, by the table's version."""

    __slots__ = ("_filter", "_owner", "_score", "_table")

    def __init__(self, owner: object, table: NodeTable, filter_: Judge | None, score: Judge | None) -> None:
        """Take the two judges; None stands for one that has no opinion."""
        self._owner = owner
        self._table = table
        self._filter = filter_
        self._score = score

    def filter(self, ask: PodAsk, rows: Rows) -> Int64 | None:
        """The verdicts, None when all nodes pass."""
        values, refuses = self._recall("filter", self._filter, ask)
        return values[rows] if values is not None and refuses else None

    def score(self, ask: PodAsk, rows: Rows) -> Int64 | None:
        """The raw scores, None without any."""
        values, _ = self._recall("score", self._score, ask)
        return None if values is None else values[rows]

    def place(self, pod: PodFacts, ask: PodAsk, row: int) -> None:
        """Nothing: the node object stays as it is."""

    def _recall(self, what: str, judge: Judge | None, ask: PodAsk) -> tuple[Int64 | None, bool]:
        """The values of all rows, and whether any of them is not 0."""
        if judge is None:
            return None, False
        table, key = self._table, (self._table, self._owner, what)
        recalled: _Recalled | None = ask.memo.get(key)
        if recalled is None or recalled.version != table.version:
            recalled = ask.memo[key] = self._work_out(judge, ask, recalled)
        return recalled.values, recalled.any

    def _work_out(self, judge: Judge, ask: PodAsk, before: "_Recalled | None") -> "_Recalled":
        table = self._table
        changed = table.changed_since(before.version) if before and len(before.values) == table.size else None
        if before is None or changed is None or len(changed) > table.size // 4:
            values = judge(table, ask, slice(0, table.size))
        else:
            values = before.values.copy()
            values[changed] = judge(table, ask, changed)
        return _Recalled(table.version, values, bool(values.any()))


class _Recalled(NamedTuple):
    version: int
    values: Int64
    any: bool
