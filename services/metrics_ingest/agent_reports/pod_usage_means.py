"""Mean usage of a node's pods over a window, from sums to which reports are added and from which they are subtracted.

A node has the same pods in most of its reports, so a report is four rows of numbers that are added at once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.metrics_ingest.agent_reports.node_usage_series import MICRO_IN_MILLI
from shared.agents.report import PodSum
from shared.events.metrics import Usage

_LARGE = 2**52
"""A report with a larger sum is added in unbounded integers; sums of two thousand smaller ones fit 63 bits."""


class PodPiece(NamedTuple):
    """The pods of one report.

    Attributes:
        amounts: int64[4, pods]: sum and count of cpu samples, sum and count of memory samples.
    """

    uids: tuple[str, ...]
    amounts: NDArray[np.int64]


def piece_of(pods: Sequence[PodSum], uids: tuple[str, ...]) -> PodPiece:
    """Returns the pods of a report, named by `uids`."""
    rows = [(pod.cpu_sum, pod.cpu_count, pod.memory_sum, pod.memory_count) for pod in pods]
    return PodPiece(uids, np.array(rows, np.int64).reshape(-1, 4).T.copy())


class PodUsageMeans:
    """Sums over the reports of a window, by uid, and the means that follow from them."""

    __slots__ = ("_rows", "_table", "_uids")

    def __init__(self) -> None:
        self._uids: tuple[str, ...] = ()
        self._rows: dict[str, int] = {}
        self._table: NDArray[Any] = np.zeros((4, 0), np.int64)

    def count(self, piece: PodPiece, sign: int) -> None:
        """Adds a report to the window (+1), or removes it (-1)."""
        uids, amounts = piece
        if amounts.size and int(amounts.max()) > _LARGE:
            # Python's integers from now on: added up, such sums overflow 64 bits.
            self._table = self._table.astype(object)
        if uids == self._uids:  # the usual case: the same pods as before, one vector addition
            self._table = self._table + sign * amounts
            return
        self._add_columns(uids)
        at = [self._rows[uid] for uid in uids]
        self._table[:, at] += sign * amounts
        if sign < 0:
            self._drop_empty()

    def means(self) -> dict[str, Usage]:
        """Returns the mean of each pod that was measured, truncated."""
        cpu, cpu_count, memory, memory_count = self._table
        used = (cpu // (np.maximum(cpu_count, 1) * MICRO_IN_MILLI)).tolist()
        mean_bytes = (memory // np.maximum(memory_count, 1)).tolist()
        if (cpu_count > 0).all() and (memory_count > 0).all():
            return dict(zip(self._uids, map(Usage, used, mean_bytes), strict=True))
        counts = zip(self._uids, used, cpu_count.tolist(), mean_bytes, memory_count.tolist(), strict=True)
        return {
            uid: Usage(cores if cores_count else None, size if size_count else None)
            for uid, cores, cores_count, size, size_count in counts
            if cores_count or size_count
        }

    def _add_columns(self, uids: tuple[str, ...]) -> None:
        new = [uid for uid in uids if uid not in self._rows]
        if new:
            for uid in new:
                self._rows[uid] = len(self._rows)
            self._uids = (*self._uids, *new)
            columns: NDArray[Any] = np.zeros((4, len(new)), self._table.dtype)
            self._table = np.concatenate((self._table, columns), axis=1)

    def _drop_empty(self) -> None:
        kept = np.flatnonzero((self._table[1] != 0) | (self._table[3] != 0))
        if len(kept) < len(self._uids):
            self._uids = tuple(self._uids[row] for row in kept.tolist())
            self._rows = {uid: row for row, uid in enumerate(self._uids)}
            self._table = self._table[:, kept]
