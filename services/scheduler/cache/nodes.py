"""The nodes as arrays, one row a node, so that a plugin evaluates all of them at once.

Rows, columns and value numbers depend on the order of arrival and never leave this process: events hold names.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.host_ports import count_ports
from services.scheduler.cache.node_label_columns import NodeLabelColumns
from services.scheduler.cache.tie_break import name_hash
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.state.cluster_event import ClusterEvent
from services.scheduler.state.pod_equivalence_class import LARGEST_AMOUNT, HostPort, PodClass
from shared.kube.node import Node, Taint
from shared.kube.quantity import BadQuantity, amount, nanos

UInt64 = NDArray[np.uint64]
Rows = NDArray[np.intp]

CPU, MEMORY = 0, 1
"""The first two columns."""

_LOG_LIMIT = 4096
_WORTH_A_SUM = 32


class NodeTable:
    """Rows of nodes, with allocatable and requested amounts.

    Attributes:
        rows: node name -> row.
        names: row -> node name; empty where the row is free.
        alive: bool[rows]: the node is observed.
        columns: resource -> column of the arrays below; new ones are added at the end.
        allocatable: int64[rows, columns]; cpu in milli-cores, memory in bytes, the rest in whole units.
        requested: int64[rows, columns]: sums of the requests of the pods on the node.
        nonzero_requested: int64[rows, 2]: cpu and memory as scores count them (100m and 200Mi for a container without).
        pods, allowed_pods: int64[rows]: pods on the node, and its allocatable number of pods.
        ports: row -> host port -> number of pods that use it.
        unschedulable: bool[rows].
        taint_set: int64[rows], index into `taints`, the distinct taint lists seen.
        labels: columns of label values.
        hashes: uint64[rows]: `name_hash` of the names.
        changed: int64[rows, ClusterEvent]: `cluster` seq of the last event of the kind.
        contexts: context of `metrics-*` with a node's newest report -> its number, from 1.
        reported, reported_in: int64[rows]: seq of the node's newest report, and the number of its context; 0 without a
            report.
        version: grows with every new row and every change of a node object (not of its pods).
        cached: what plugins have worked out from node objects; nothing that they could not work out anew.
    """

    def __init__(self, room: int = 64) -> None:
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.columns: dict[str, int] = {"cpu": CPU, "memory": MEMORY}
        self.taints: list[tuple[Taint, ...]] = [()]
        self.ports: dict[int, dict[HostPort, int]] = {}
        self.labels = NodeLabelColumns()
        self.version = 0
        self.cached: dict[object, Any] = {}
        self.alive = np.zeros(room, np.bool_)
        self.allocatable: Int64 = np.zeros((room, 2), np.int64, order="F")
        self.requested: Int64 = np.zeros((room, 2), np.int64, order="F")
        self.nonzero_requested: Int64 = np.zeros((room, 2), np.int64, order="F")
        self.pods: Int64 = np.zeros(room, np.int64)
        self.allowed_pods: Int64 = np.zeros(room, np.int64)
        self.unschedulable = np.zeros(room, np.bool_)
        self.taint_set: Int64 = np.zeros(room, np.int64)
        self.hashes: UInt64 = np.zeros(room, np.uint64)
        self.changed: Int64 = np.zeros((room, len(ClusterEvent)), np.int64)
        self.contexts: dict[str, int] = {}
        self.reported: Int64 = np.zeros(room, np.int64)
        self.reported_in: Int64 = np.zeros(room, np.int64)
        self._taint_numbers: dict[tuple[Taint, ...], int] = {(): 0}
        self._free: list[int] = []
        self._log: list[int] = []  # rows of changed node objects; entry i came with version _log_start + i + 1
        self._log_start = 0

    @property
    def size(self) -> int:
        """Returns the number of rows that are or were in use: the length at which arrays are read."""
        return len(self.names)

    def row(self, name: str) -> int:
        """Returns the node's row; assigns a new or free one at the first mention."""
        row = self.rows.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = len(self.names)
            self.names.append(name)
            if row >= len(self.alive):
                self._grow_rows(2 * row)
        self.rows[name] = row
        self.hashes[row] = name_hash(name)
        self._note(row)
        return row

    def release(self, name: str) -> None:
        """Frees the row of a deleted node without pods; the name gets another row when the node returns."""
        row = self.rows.get(name)
        if row is None or self.alive[row] or self.pods[row]:
            return
        del self.rows[name]
        self.names[row] = ""
        self._free.append(row)

    def set_node(self, name: str, node: Node | None, changed: Sequence[int] = ()) -> int:
        """Sets a node as observed, None when it is deleted. Returns its row."""
        row = self.row(name)
        self.alive[row] = node is not None
        self.allocatable[row] = 0
        self.allowed_pods[row] = 0
        if node is not None:
            for resource, size in readable(node.status.allocatable or {}).items():
                if resource == "pods":
                    self.allowed_pods[row] = size
                else:
                    column = self.column(resource)  # may make the array anew
                    self.allocatable[row, column] = size
            self.unschedulable[row] = node.spec.unschedulable
            self.taint_set[row] = self._taint_number(node.spec.taints)
            self.labels.set(row, node.metadata.labels or {})
            self.changed[row] = changed or 0
        self._note(row)
        return row

    def set_changed(self, name: str, changed: Sequence[int]) -> None:
        """Sets the seqs of a node's last events without reading its object again."""
        self.changed[self.rows[name]] = changed

    def set_reported(self, row: int, context: str, seq: int) -> None:
        """Sets the context and seq of the node's newest report; seq 0 when there is none."""
        self.reported[row] = seq
        self.reported_in[row] = self.contexts.setdefault(context, len(self.contexts) + 1) if seq else 0

    def reported_since(self, saw: Iterable[tuple[str, int]]) -> NDArray[np.bool_]:
        """Returns bool[rows]: the nodes whose newest report is beyond these positions of `metrics-*`."""
        upto = np.zeros(len(self.contexts) + 1, np.int64)
        for context, seq in saw:
            if context in self.contexts:
                upto[self.contexts[context]] = seq
        newer: NDArray[np.bool_] = self.reported[: self.size] > upto[self.reported_in[: self.size]]
        return newer

    def column(self, resource: str) -> int:
        """Returns the column of a resource; adds one at the first mention."""
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = len(self.columns)
            if column >= self.allocatable.shape[1]:
                self.allocatable, self.requested = (_wider(a, 2 * column) for a in (self.allocatable, self.requested))
        return column

    def count(self, moves: Sequence[tuple[int, PodClass, int]]) -> None:
        """Changes the requested amounts by a list of (row, class, +1 or -1), one a pod."""
        if len(moves) >= _WORTH_A_SUM:
            self._count_together(moves)
            return
        for row, pod_class, sign in moves:
            vector = self.vector(pod_class)
            requested = self.requested
            for column, size in vector:
                requested[row, column] += sign * size
            self.nonzero_requested[row, CPU] += sign * pod_class.nonzero_assigned.get("cpu", 0)
            self.nonzero_requested[row, MEMORY] += sign * pod_class.nonzero_assigned.get("memory", 0)
            self.pods[row] += sign
            if pod_class.ports:
                self._count_ports(row, pod_class.ports, sign)

    def _count_together(self, moves: Sequence[tuple[int, PodClass, int]]) -> None:
        """Does the same as `count` with one sum per column: faster for many pods."""
        numbers: dict[PodClass, int] = {}
        which = np.array([numbers.setdefault(pod_class, len(numbers)) for _, pod_class, _ in moves], np.intp)
        vectors = [self.vector(pod_class) for pod_class in numbers]  # may make the arrays anew
        requests = np.zeros((len(numbers), self.requested.shape[1]), np.int64)
        for number, vector in enumerate(vectors):
            for column, size in vector:
                requests[number, column] = size
        nonzero = np.array(
            [
                (pod_class.nonzero_assigned.get("cpu", 0), pod_class.nonzero_assigned.get("memory", 0))
                for pod_class in numbers
            ],
            np.int64,
        )
        rows = np.array([row for row, _, _ in moves], np.intp)
        signs = np.array([sign for _, _, sign in moves], np.int64)
        for column in np.flatnonzero(requests.any(axis=0)).tolist():
            np.add.at(self.requested[:, column], rows, requests[which, column] * signs)
        for column in (CPU, MEMORY):
            np.add.at(self.nonzero_requested[:, column], rows, nonzero[which, column] * signs)
        np.add.at(self.pods, rows, signs)
        for row, pod_class, sign in moves:
            if pod_class.ports:
                self._count_ports(row, pod_class.ports, sign)

    def vector(self, pod_class: PodClass) -> tuple[tuple[int, int], ...]:
        """Returns (column, amount) of each request of the class above 0, in the order of columns."""
        vector: tuple[tuple[int, int], ...] | None = pod_class.cached.get(self)
        if vector is None:
            vector = tuple(sorted((self.column(name), size) for name, size in pod_class.request.items() if size > 0))
            pod_class.cached[self] = vector
        return vector

    def changed_since(self, version: int) -> Rows | None:
        """Returns the rows whose node object changed after `version`; None when the log no longer reaches back
        to it.
        """
        if version < self._log_start:
            return None
        return np.unique(np.array(self._log[version - self._log_start :], np.intp))

    def _note(self, row: int) -> None:
        self.version += 1
        self._log.append(row)
        if len(self._log) > _LOG_LIMIT + self.size:
            cut = len(self._log) // 2
            del self._log[:cut]
            self._log_start += cut

    def _taint_number(self, taints: tuple[Taint, ...]) -> int:
        number = self._taint_numbers.get(taints)
        if number is None:
            number = self._taint_numbers[taints] = len(self.taints)
            self.taints.append(taints)
        return number

    def _count_ports(self, row: int, ports: tuple[HostPort, ...], sign: int) -> None:
        counts = self.ports.setdefault(row, {})
        count_ports(counts, ports, sign)
        if not counts:
            del self.ports[row]

    def _grow_rows(self, room: int) -> None:
        for name in ("alive", "allocatable", "requested", "nonzero_requested", "pods", "allowed_pods", "unschedulable", "taint_set",
                     "hashes", "changed", "reported", "reported_in"):  # fmt: skip
            before = getattr(self, name)
            after = np.zeros((room, *before.shape[1:]), before.dtype, order="F" if name != "changed" else "C")
            after[: len(before)] = before
            setattr(self, name, after)


def readable(quantities: dict[str, str]) -> dict[str, int]:
    """Returns the amounts of a node, bounded; a quantity that cannot be read counts 0 rather than ending the
    service.
    """
    amounts: dict[str, int] = {}
    for resource, text in quantities.items():
        try:
            amounts[resource] = _bounded(resource, text)
        except BadQuantity:
            amounts[resource] = 0
    return amounts


@lru_cache(maxsize=16_384)
def _bounded(resource: str, text: str) -> int:
    return min(max(amount(resource, nanos(text)), 0), LARGEST_AMOUNT)


def _wider(array: Int64, columns: int) -> Int64:
    wider = np.zeros((array.shape[0], columns), np.int64, order="F")
    wider[:, : array.shape[1]] = array
    return wider
