"""Filter, score and reserve over all candidate nodes, on a copy of the loads for one scheduling cycle."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from services.scheduler.framework.kernel_filter_and_score_terms import LoadTerm
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows, selected
from services.scheduler.kernels.node_load import exceeded_limits, load_scores
from services.scheduler.plugins.load_aware_scheduling.estimate_window import counts_on_node
from services.scheduler.plugins.load_aware_scheduling.estimates_by_pod_template import PodTemplate
from services.scheduler.plugins.load_aware_scheduling.load_arrays import (
    ANY_POD,
    FILTER,
    PROD,
    PROD_POD,
    SCORE,
    RowCapacity,
)
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from shared.kube.pod import Pod

PASSES, EXPIRED = 0, 1
_FIRST_RESOURCE = 2


def reasons(resources: tuple[str, ...]) -> tuple[Reason, ...]:
    """The reasons by code: 0 passes, 1 an expired report, then plain usage by resource, then usage over a window."""
    return (
        Reason(""),
        Reason("NodeMetricExpired"),
        *(Reason("UsageExceedsThreshold", name) for name in resources),
        *(Reason("AggregatedUsageExceedsThreshold", name) for name in resources),
    )


class LoadState:
    """The loads for one cycle: as recorded, plus the pods that the cycle has placed so far."""

    def __init__(self, plugin_cache: LoadCache) -> None:
        args = plugin_cache.args
        self._plugin_cache = plugin_cache
        self._arrays = plugin_cache.arrays
        self._loads = plugin_cache.arrays.loads.copy()
        self._any_prod_mode = bool(plugin_cache.arrays.prod_mode.any())
        self._any_windowed = bool(plugin_cache.arrays.windowed.any())
        self._limited = [bool(of_kind.any()) for of_kind in plugin_cache.arrays.limited]
        self._refuses_expired = bool(args.filter_expired_node_metrics)
        self._passes_expired = bool(args.enable_schedule_when_node_metrics_expired)
        self._weights = np.array([args.resource_weights.get(name, 0) for name in plugin_cache.resources], np.int64)
        self._dominant = args.dominant_resource_weight
        self._total_weight = int(self._weights.sum()) + self._dominant
        self._scores_prod = bool(args.score_according_prod_usage)
        self._before: list[list[RowCapacity]] = []  # of each `add_capacity` that is not undone, oldest first

    def add_capacity(self, rows: NDArray[np.int64], deltas: Mapping[str, NDArray[np.int64]]) -> None:
        """Adds amounts to the allocatable ones of distinct rows, for the rest of the cycle."""
        if self._arrays is self._plugin_cache.arrays:
            self._arrays = self._arrays.with_own_capacity()
        self._before.append([self._arrays.capacity(row) for row in rows.tolist()])
        sizes = {name: of_rows.tolist() for name, of_rows in deltas.items()}
        for place, row in enumerate(rows.tolist()):
            added = {name: of_rows[place] for name, of_rows in sizes.items()}
            self._plugin_cache.add_capacity(self._arrays, row, added)

    def undo_add_capacity(self) -> None:
        """Undoes the last `add_capacity` that is not undone."""
        for capacity in self._before.pop():
            self._arrays.restore(capacity)

    def filter(self, pod: Pod, rows: Rows, now_ns: int) -> Int64:
        """Filters nodes by the share of allocatable that would be in use with this pod.

            share = (load + the pod's estimate) / allocatable * 100, rejected when goround(share) > threshold

        Args:
            rows: [candidates].

        Returns:
            [candidates], 0 where the node passes, else an index into `reasons`: the first resource, in their
            order, that is exceeded. Pods of a DaemonSet, nodes without a report or thresholds always pass.
        Source: spec/scheduler-core.md 3.5; upstream load_aware.go, Filter.
        """
        arrays = self._arrays
        if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
            return np.zeros(selected(rows, arrays.rows)[1], np.int64)
        template = self._plugin_cache.templates.of(pod)
        kind = PROD_POD if template.is_prod else ANY_POD
        if not (self._limited[kind] or self._refuses_expired):
            return np.zeros(selected(rows, arrays.rows)[1], np.int64)
        codes = exceeded_limits(
            *selected(rows, arrays.rows),
            self._loads[FILTER],
            self._loads[PROD],
            arrays.prod_mode,
            template.is_prod,
            template.incoming,
            arrays.divisor,
            arrays.limits[kind],
        )
        codes += codes > 0  # NodeMetricExpired precedes the first resource
        if self._any_windowed:
            windowed = arrays.windowed[rows]
            if template.is_prod:
                windowed = windowed & ~arrays.prod_mode[rows]
            codes[windowed & (codes != PASSES)] += len(arrays.divisor)
        if self._refuses_expired:
            expired = arrays.expires_ns[kind][rows] <= now_ns
            codes[expired] = PASSES if self._passes_expired else EXPIRED
        return codes

    def score(self, pod: Pod, rows: Rows, now_ns: int) -> Int64:
        """Scores nodes by the capacity that the pod would leave, resource by resource and on the scarcest one.

            free  = floor( 100 * (allocatable - load - estimate) / allocatable ), 0 where that is negative or undefined
            score = floor( (sum of weight * free + dominant weight * least free) / (sum of weights + dominant weight) )

        Args:
            rows: [candidates], nodes that passed every filter.

        Returns:
            [candidates], 0..100; 0 without a fresh report. A pod's own factors may make its estimate negative, so
            the score is cut at 100.
        Source: spec/scheduler-core.md 3.6; upstream load_aware.go, Score.
        """
        (which, count), part = selected(rows, self._arrays.rows), self.score_term(pod, now_ns)
        return np.zeros(count, np.int64) if part is None else load_scores(which, count, *part)

    def score_term(self, pod: Pod, now_ns: int) -> LoadTerm | None:
        """Describes `score` for the fused kernel; None when no resource counts."""
        if not self._total_weight:
            return None
        arrays, template = self._arrays, self._plugin_cache.templates.of(pod)
        load = self._loads[PROD if self._scores_prod and template.is_prod else SCORE]
        weights = self._weights, self._dominant, self._total_weight
        return LoadTerm(arrays.allocatable, load, template.incoming, *weights, arrays.scored_until_ns, now_ns)

    def limits(self, pod: Pod) -> bool:
        """Returns True where `filter` may reject a node for the pod, or for one that differs in amounts alone."""
        kind = PROD_POD if self._plugin_cache.templates.of(pod).is_prod else ANY_POD
        return self._limited[kind] or self._refuses_expired

    def filter_at(self, pod: Pod, row: int, now_ns: int) -> int:
        """`filter` of one node in plain integers: called after each placement, at a tenth of the cost."""
        if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references):
            return PASSES
        arrays, template = self._arrays, self._plugin_cache.templates.of(pod)
        kind = PROD_POD if template.is_prod else ANY_POD
        if self._refuses_expired and arrays.expires_ns.item(kind, row) <= now_ns:
            return PASSES if self._passes_expired else EXPIRED
        as_prod = template.is_prod and arrays.prod_mode.item(row)
        resources = arrays.divisor.shape[0]
        for resource in range(resources):
            load = self._loads.item(PROD if as_prod else FILTER, resource, row) + template.incoming.item(resource)
            share = float(load) / float(arrays.divisor.item(resource, row)) * 100.0
            if share >= arrays.limits.item(kind, resource, row):
                windowed = arrays.windowed.item(row) and not as_prod
                return resource + _FIRST_RESOURCE + (resources if windowed else 0)
        return PASSES

    def score_at(self, pod: Pod, row: int, now_ns: int) -> int:
        """`score` of one node in plain integers."""
        arrays, template = self._arrays, self._plugin_cache.templates.of(pod)
        if not self._total_weight or arrays.scored_until_ns.item(row) <= now_ns:
            return 0
        load = PROD if self._scores_prod and template.is_prod else SCORE
        rooms = []
        for resource in range(arrays.divisor.shape[0]):
            free = arrays.allocatable.item(resource, row) - self._loads.item(load, resource, row)
            free -= template.incoming.item(resource)
            rooms.append(max(free, 0) * 100 // arrays.divisor.item(resource, row))
        total: int = sum(room * weight for room, weight in zip(rooms, self._weights.tolist(), strict=True))
        if self._dominant:
            total += min(*rooms, 100) * self._dominant
        return min(total // self._total_weight, 100)

    def add(self, row: int, name: str, template: PodTemplate, assigned_ns: int) -> NDArray[np.int64]:
        """Counts a pod on a node for the rest of the cycle, as Reserve does.

        Args:
            name: `namespace/name`; a report may contain an earlier pod of this name.

        Returns:
            int64[3, resources], the amounts that it adds.
        """
        block = self._plugin_cache.would_add(row, name, template, assigned_ns)
        self._loads[:, :, row] += block
        return block

    def undo_add(self, row: int, name: str, template: PodTemplate, assigned_ns: int) -> None:
        """Undoes an `add` or its part of an `add_unreported`: in a cycle, equal arguments add equal amounts."""
        self._loads[:, :, row] -= self._plugin_cache.would_add(row, name, template, assigned_ns)

    def unreported_of(
        self, rows: Sequence[int], names: Iterable[str], template: PodTemplate, assigned_ns: int
    ) -> list[bool]:
        """The index into `template.unreported` for each pod, up to the first that a report names or that has to be added singly."""
        found: list[bool] = []
        if template.unreported is None:
            return found
        plain, reported = template.unreported
        for row, name in zip(rows, names, strict=True):
            block = self._plugin_cache.would_add(row, name, template, assigned_ns)
            if block is not plain and block is not reported:
                break
            found.append(block is not plain)
        return found

    def add_unreported(self, rows: Sequence[int], template: PodTemplate, which: Sequence[bool]) -> None:
        """Adds such pods, each to another node; `which` is a result of `unreported_of`."""
        assert template.unreported is not None, "as unseen_of has seen"
        blocks = np.array(template.unreported)[np.array(which, np.intp)]  # [pods, 3, resources]
        self._loads[:, :, np.array(rows, np.intp)] += blocks.transpose(1, 2, 0)

    def can_predict(self, pod: Pod) -> bool:
        """Returns True where such a pod counts with its estimate only."""
        return counts_on_node(pod) and not (
            self._plugin_cache.templates.of(pod).is_prod and (self._any_prod_mode or self._scores_prod)
        )

    def after_one_more(self, pod: Pod) -> "LoadState | None":
        """The loads with one more such pod on every node, by its estimate; None where more than the estimate counts."""
        template = self._plugin_cache.templates.of(pod)
        if not self.can_predict(pod):
            return None
        fuller = copy(self)
        fuller._loads = self._loads.copy()  # noqa: SLF001
        incoming = template.incoming[:, np.newaxis]
        fuller._loads[FILTER] += incoming  # noqa: SLF001
        fuller._loads[SCORE] += incoming  # noqa: SLF001
        return fuller
