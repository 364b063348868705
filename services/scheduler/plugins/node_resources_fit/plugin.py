"""NodeResourcesFit: the requests of a pod must fit into the free resources of a node; scores by allocation.

Source: spec/scheduler-core.md 2.2, 2.3; upstream Kubernetes pkg/scheduler/framework/plugins/noderesources.
"""

from typing import ClassVar, NamedTuple

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.kernel_filter_and_score_terms import AllocationTerm, FitTerm, ScoreTerm
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.kernels.fit_allocation_balance import allocation_scores, capacity_ratio_scores, fit_results
from services.scheduler.plugins.helper.scoring_strategy_args import ALWAYS_SCORED, LEAST, MOST, RATIO
from services.scheduler.plugins.node_resources_fit import SPEC
from services.scheduler.plugins.node_resources_fit.args import FitArgs
from services.scheduler.state.pod_equivalence_class import PodClass

_TOO_MANY_PODS = 1  # bit 0 of a filter result; bit i + 1 stands for the i-th resource of the class
_TOO_SMALL = 1 << 61  # set in addition when the node is too small even without any pod
_MOST_RESOURCES = 60
_COUNTED_WITH_DEFAULTS = {"cpu": 0, "memory": 1}  # resource -> column of CycleSnapshot.nonzero_requested
_MILLI_POINTS = 10  # scores of a shape are 0..10, MaxNodeScore is 100


class NodeResourcesFit(Plugin):
    """Rejects nodes with insufficient resources, with a reason for each of these; scores by the configured strategy."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: FitArgs) -> None:
        self.args = args
        self._ignores = bool(args.ignored_resources or args.ignored_resource_groups)

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """A filter result is a set of bits: too many pods, and one for each insufficient resource."""
        return NodeResourcesFitState(self, snapshot)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:
        """One reason for each bit."""
        reasons = [Reason("TooManyPods")] if result & _TOO_MANY_PODS else []
        names = [name for name, _ in self._amounts(pod_class)]
        reasons += [Reason("InsufficientResource", name) for bit, name in enumerate(names) if result >> (bit + 1) & 1]
        return tuple(reasons)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Returns True for a node that is too small even without any pod."""
        return bool(result & _TOO_SMALL)

    def checked(self, pod_class: PodClass, table: NodeTable) -> "_Checked":
        """The requests that the filter checks, as columns of the table."""
        checked: _Checked | None = pod_class.cached.get(self)
        if checked is None or checked.table is not table:
            pairs = tuple((table.column(name), size) for name, size in self._amounts(pod_class))
            columns = np.array([column for column, _ in pairs], np.int64)
            sizes = np.array([size for _, size in pairs], np.int64)
            checked = pod_class.cached[self] = _Checked(table, FitTerm(columns, sizes, _TOO_SMALL), pairs)
        return checked

    def _amounts(self, pod_class: PodClass) -> tuple[tuple[str, int], ...]:
        """The resources that the filter checks, with the requested amounts, in the order of the bits of a filter result."""
        amounts = sorted(
            [(name, size) for name, size in pod_class.request.items() if size > 0 and not self._ignored(name)]
        )
        return tuple(amounts[:_MOST_RESOURCES])

    def _ignored(self, resource: str) -> bool:
        """Returns True for an ignored resource; only extended ones (a domain other than kubernetes.io) can be ignored."""
        if not self._ignores:
            return False
        group, slash, _ = resource.partition("/")
        if not slash or group == "kubernetes.io" or group.endswith(".kubernetes.io"):
            return False
        return resource in self.args.ignored_resources or group in self.args.ignored_resource_groups


class _Checked(NamedTuple):
    """The requests of a class, as the filter checks them.

    Attributes:
        table: the one that the columns refer to.
        shortage: columns and sizes in the order of the bits of a filter result; pairs: the same as integers.
    """

    table: NodeTable
    shortage: FitTerm
    pairs: tuple[tuple[int, int], ...]


class NodeResourcesFitState(PluginCycleState):
    """State of NodeResourcesFit for one cycle."""

    def __init__(self, plugin: NodeResourcesFit, snapshot: CycleSnapshot) -> None:
        self._plugin = plugin
        self._snapshot = snapshot
        strategy = plugin.args.scoring_strategy
        self._type = strategy.type
        self._resources = tuple((resource.name, resource.weight) for resource in strategy.resources)
        self._columns = tuple(snapshot.column(name) for name, _ in self._resources)
        self._sources = tuple(_COUNTED_WITH_DEFAULTS.get(name, -1) for name, _ in self._resources)
        self._weights = tuple(weight for _, weight in self._resources)
        ratio = strategy.requested_to_capacity_ratio
        points = ratio.shape if ratio else ()
        self._shape_at = np.array([point.utilization for point in points], np.int64)
        self._shape = np.array([point.score * _MILLI_POINTS for point in points], np.int64)

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64:
        """Bits of the insufficient resources: pods + 1 > allowed; request > allocatable - requested, for each resource."""
        snapshot, shortage = self._snapshot, self.fit_term(pod_class)
        amounts = snapshot.pods, snapshot.allowed_pods, snapshot.allocatable.T, snapshot.requested.T
        return fit_results(*snapshot.which(rows), *amounts, shortage.resources, shortage.sizes, _TOO_SMALL)

    def fit_term(self, pod_class: PodClass) -> FitTerm:
        """The requests that the filter checks."""
        return self._plugin.checked(pod_class, self._snapshot.table).shortage

    def score(self, pod_class: PodClass, rows: Rows) -> Int64:
        """Weighted mean over the configured resources of the strategy's score for each, 0..100.

        A resource that a node does not have, and one other than cpu, memory and ephemeral-storage that the pod does not
        request, counts neither in the sum nor in the weights.
        """
        snapshot, part = self._snapshot, self._fullness(pod_class)
        arrays = (
            *snapshot.which(rows),
            snapshot.allocatable.T,
            snapshot.requested.T,
            snapshot.nonzero_requested.T,
        )
        if self._type == RATIO:
            return capacity_ratio_scores(*arrays, *part.arrays()[:4], self._shape_at, self._shape)
        return allocation_scores(*arrays, *part.arrays())

    def score_term(self, pod_class: PodClass) -> ScoreTerm | None:
        """The allocation of nodes; None for RequestedToCapacityRatio, whose shape `score` evaluates."""
        return None if self._type == RATIO else self._fullness(pod_class)

    def _fullness(self, pod_class: PodClass) -> AllocationTerm:
        requested, columns = (
            tuple([pod_class.nonzero_request.get(name, 0) for name, _ in self._resources]),
            self._columns,
        )
        if 0 in requested:
            columns = tuple(
                column if size > 0 or name in ALWAYS_SCORED else -1
                for column, size, (name, _) in zip(columns, requested, self._resources, strict=True)
            )
        return AllocationTerm(columns, self._sources, requested, self._weights, self._type == MOST)

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The bits of one node."""
        snapshot = self._snapshot
        short = int(snapshot.pods.item(row) >= snapshot.allowed_pods.item(row))
        for bit, (column, size) in enumerate(self._plugin.checked(pod_class, snapshot.table).pairs):
            free = capacity = 0
            if column < snapshot.requested.shape[1]:
                capacity = snapshot.allocatable.item(row, column)
                free = capacity - snapshot.requested.item(row, column)
            if free < size:
                short |= 2 << bit
            if capacity < size:
                short |= _TOO_SMALL
        return short

    def score_at(self, pod_class: PodClass, row: int) -> int:
        """The score of one node."""
        if self._type != LEAST:
            return int(self.score(pod_class, np.array([row]))[0])
        snapshot, table = self._snapshot, self._snapshot.table
        total = weights = 0
        for name, weight in self._resources:
            requested = pod_class.nonzero_request.get(name, 0)
            column = table.columns.get(name)
            if column is None or column >= snapshot.requested.shape[1] or (not requested and name not in ALWAYS_SCORED):
                continue
            capacity = snapshot.allocatable.item(row, column)
            if capacity <= 0:
                continue
            default_column = _COUNTED_WITH_DEFAULTS.get(name)
            used = (
                snapshot.requested.item(row, column)
                if default_column is None
                else snapshot.nonzero_requested.item(row, default_column)
            )
            needed = used + requested
            if needed <= capacity:
                total += (capacity - needed) * 100 // capacity * weight
            weights += weight
        return total // weights if weights else 0

    def can_predict(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns True for every class."""
        return True

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> "NodeResourcesFitState":  # noqa: ARG002
        """The state with one more pod of the class on every node."""
        return NodeResourcesFitState(self._plugin, snapshot)
