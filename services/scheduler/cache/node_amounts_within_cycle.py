"""Allocatable and requested amounts, pods and ports of the nodes within a cycle."""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.cache.cycle_pod_changes import CyclePodChanges, PodChange
from services.scheduler.cache.host_ports import HostPorts
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.pod_counts_by_selector_and_node import PodIndex
from services.scheduler.cache.reservation_holds import CycleHolds
from services.scheduler.kernels.argument_and_result_types import NodeAmounts
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows, selected
from services.scheduler.state.pod_equivalence_class import LARGEST_AMOUNT, PodClass
from services.scheduler.state.pod_scheduling_record import Assignment


class Capacity(NamedTuple):
    """Allocatable amounts of some rows.

    Attributes:
        amounts: int64[rows, columns].
        pods: int64[rows].
    """

    amounts: Int64
    pods: Int64


class CycleSnapshot:
    """The node table's amounts within a cycle, to which the cycle adds its placements.

    Attributes:
        allocatable: int64[rows, columns]: the table's own array, until `add_capacity` replaces it by a copy; it may
            have more rows than `size`.
        allowed_pods: int64[rows]: likewise.
        owns_capacity: both are copies.
        requested, nonzero_requested, pods: as in NodeTable.
        ports: host ports in use, by row.
        pod_changes: the pods that the cycle has placed and removed.
        holds: Reservations and their use.
        pod_index: pods of each class by node, as the cycle began.
        assigned: row -> uid -> assignment of its pods, as the cycle began.
        cluster_objects: objects beyond nodes and pods.
    """

    def __init__(
        self,
        table: NodeTable,
        pod_index: PodIndex | None = None,
        cluster_objects: ClusterObjects | None = None,
        assigned: Mapping[int, Mapping[str, Assignment]] | None = None,
    ) -> None:
        self.table = table
        self.pod_index = pod_index or PodIndex()
        self.cluster_objects = cluster_objects or ClusterObjects()
        self.assigned = assigned or {}
        self.size = table.size
        self.allocatable, self.allowed_pods = table.allocatable, table.allowed_pods
        self._known = len(table.columns)
        self.owns_capacity = False
        self.requested: Int64 = table.requested[: self.size].copy(order="F")
        self.nonzero_requested: Int64 = table.nonzero_requested[: self.size].copy(order="F")
        self.pods: Int64 = table.pods[: self.size].copy()
        self.ports = HostPorts(table.ports)
        self.pod_changes = CyclePodChanges()
        self._vectors: dict[PodClass, tuple[tuple[int, int], ...]] = {}
        self.holds = CycleHolds(self.cluster_objects.reservations)

    def column(self, resource: str) -> int:
        """Returns the resource's column in the arrays; -1 when no node had it as the cycle began."""
        column = self.table.columns.get(resource, -1)
        return column if column < self._known else -1

    def amounts(self) -> NodeAmounts:
        """Returns the amounts as the kernels take them: views, not copies."""
        return NodeAmounts(self.pods, self.allowed_pods, self.allocatable.T, self.requested.T, self.nonzero_requested.T)

    def which(self, rows: Rows) -> tuple[Int64, int]:
        """Returns the rows in the form that kernels take."""
        return selected(rows, self.size)

    def after(self, pod_class: PodClass) -> "CycleSnapshot":
        """Returns the snapshot with one more pod of the class on each node; ports are not counted."""
        fuller = copy(self)
        fuller.requested, fuller.nonzero_requested = (
            self.requested.copy(order="F"),
            self.nonzero_requested.copy(order="F"),
        )
        for column, size in self._vector(pod_class):
            fuller.requested[:, column] += size
        fuller.nonzero_requested[:, 0] += pod_class.nonzero_assigned.get("cpu", 0)
        fuller.nonzero_requested[:, 1] += pod_class.nonzero_assigned.get("memory", 0)
        fuller.pods = self.pods + 1
        return fuller

    def add_capacity(self, rows: Int64, deltas: Mapping[str, Int64]) -> Capacity:
        """Adds amounts to the allocatable ones of distinct rows; the table keeps its own.

        Args:
            deltas: resource -> [rows], added, or taken away where negative; the sum is bounded as the table bounds the
                amounts of a node. Each resource has a column, except `pods`.

        Returns:
            The amounts before.
        """
        if not self.owns_capacity:
            self.allocatable, self.allowed_pods = self.allocatable.copy(order="F"), self.allowed_pods.copy()
            self.owns_capacity = True
        before = Capacity(self.allocatable[rows], self.allowed_pods[rows])
        for resource, sizes in deltas.items():
            of_rows = self.allowed_pods if resource == "pods" else self.allocatable[:, self.column(resource)]
            of_rows[rows] = np.clip(of_rows[rows] + sizes, 0, LARGEST_AMOUNT)
        return before

    def restore_capacity(self, rows: Int64, before: Capacity) -> None:
        """Sets the allocatable amounts of rows to what `add_capacity` returned."""
        self.allocatable[rows], self.allowed_pods[rows] = before

    def place(self, pod_class: PodClass, row: int) -> None:
        """Counts a pod on a node."""
        self.move(pod_class, row, 1)

    def undo_place(self, pod_class: PodClass, row: int) -> None:
        """Undoes the last `place` that is not undone yet; a `place_all` is undone row by row, the last one first."""
        self.undo_move(pod_class, row, 1)

    def place_all(self, pod_class: PodClass, rows: Sequence[int]) -> None:
        """Counts a pod on each of these nodes."""
        which = np.array(rows, np.intp)
        for column, size in self._vector(pod_class):
            self.requested[which, column] += size
        self.nonzero_requested[which, 0] += pod_class.nonzero_assigned.get("cpu", 0)
        self.nonzero_requested[which, 1] += pod_class.nonzero_assigned.get("memory", 0)
        self.pods[which] += 1
        for row in rows if pod_class.ports else ():
            self.ports.count(row, pod_class.ports, 1)
        self.pod_changes.changes += [PodChange(pod_class, row, 1) for row in rows]

    def move(self, pod_class: PodClass, row: int, sign: int, *, terminating: bool = False) -> None:
        """Counts a pod on a node (+1), or removes it (-1)."""
        self._count(pod_class, row, sign)
        self.pod_changes.changes.append(PodChange(pod_class, row, sign, terminating))

    def undo_move(self, pod_class: PodClass, row: int, sign: int) -> None:
        """Undoes the last `move` that is not undone yet."""
        self._count(pod_class, row, -sign)
        self.pod_changes.undo()

    def _vector(self, pod_class: PodClass) -> tuple[tuple[int, int], ...]:
        """Returns (column, amount) of each request of the class that a node had when the cycle began."""
        vector = self._vectors.get(pod_class)
        if vector is None:
            columns = self.requested.shape[1]
            vector = tuple(each for each in self.table.vector(pod_class) if each[0] < columns)
            self._vectors[pod_class] = vector
        return vector

    def _count(self, pod_class: PodClass, row: int, sign: int) -> None:
        for column, size in self._vector(pod_class):
            self.requested[row, column] += sign * size
        self.nonzero_requested[row, 0] += sign * pod_class.nonzero_assigned.get("cpu", 0)
        self.nonzero_requested[row, 1] += sign * pod_class.nonzero_assigned.get("memory", 0)
        self.pods[row] += sign
        if pod_class.ports:
            self.ports.count(row, pod_class.ports, sign)
