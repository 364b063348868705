"""The domains of a topology key (zones, racks, hosts) as numbers, and pods counted by them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.node_label_columns import ABSENT
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.pod_counts_by_selector_and_node import RowCounts
from services.scheduler.kernels.array_types_and_row_selection import Bools, Int64

_SPARSE = 8
"""Counts on fewer than one row in so many are summed up row by row."""


class Domains(NamedTuple):
    """The nodes by their value of one label.

    Attributes:
        of: intp[rows], number of the node's domain; `size` for nodes without the label and for rows without a node.
        size: number of domains; arrays over domains have one entry more, for the rows outside of any.
        known: bool[rows], True for nodes in a domain.
    """

    of: NDArray[np.intp]
    size: int
    known: Bools

    def counted(self, counts: RowCounts, included: Bools | None = None) -> Int64:
        """int64[size + 1]: pods a domain, over the included nodes (all when not given). The last entry is 0."""
        rows_total = len(self.of)
        if len(counts.rows) * _SPARSE < rows_total:
            rows = np.fromiter(counts.rows, np.intp, len(counts.rows))
            pods = np.fromiter(counts.rows.values(), np.int64, len(counts.rows))
            inside = rows < rows_total
            rows, pods = rows[inside], pods[inside]
        else:
            rows, pods = np.arange(rows_total), counts.dense(rows_total)
        if included is not None:
            keep = included[rows]
            rows, pods = rows[keep], pods[keep]
        sums = np.bincount(self.of[rows], weights=pods, minlength=self.size + 1).astype(np.int64)
        sums[self.size] = 0
        return sums

    def touched_by(self, rows: Bools) -> Bools:
        """bool[size + 1]: domains of the marked rows; the last entry stands for rows outside of any domain."""
        met = np.zeros(self.size + 1, np.bool_)
        met[self.of[rows]] = True
        return met


def domains(table: NodeTable, key: str) -> Domains:
    """The domains of a key; computed once for each version of the table."""
    entry = ("topology", key)
    cached: tuple[int, int, Domains] | None = table.cached.get(entry)
    if cached is None or cached[:2] != (table.version, table.size):
        numbers, size = table.labels.numbers(key, table.size)
        known = (numbers != ABSENT) & table.alive[: table.size]
        of = np.where(known, numbers, size).astype(np.intp)
        cached = table.cached[entry] = (table.version, table.size, Domains(of, size, known))
    return cached[2]
