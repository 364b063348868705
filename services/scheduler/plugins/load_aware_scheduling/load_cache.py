"""Load of every node: its report, plus the pods that the report cannot contain yet, kept as sums over nodes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.estimate_window import deadline_ns
from services.scheduler.plugins.load_aware_scheduling.estimates_by_pod_template import PodTemplate, PodTemplates
from services.scheduler.plugins.load_aware_scheduling.int64_bound import bounded
from services.scheduler.plugins.load_aware_scheduling.load_arrays import (
    ANY_POD,
    FOREVER,
    NEVER,
    PROD_POD,
    LoadArrays,
    int64,
)
from services.scheduler.plugins.load_aware_scheduling.node_metric_report import (
    Report,
    Vector,
    base_load,
    read_report,
)
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import (
    Percents,
    Thresholds,
    default_thresholds,
    node_thresholds,
    score_window,
)
from services.scheduler.plugins.load_aware_scheduling.pod_estimate import estimate_node, raw_amounts
from services.scheduler.plugins.load_aware_scheduling.pod_load_not_in_report import PodShare, share_of_pod
from shared.kube.node import Node, NodeMetric


class CountedPod(NamedTuple):
    """A pod that counts on a node.

    Attributes:
        pod: `namespace/name`, its key in reports.
        block: int64[3, resources], the amounts that it adds to the node's loads.
    """

    row: int
    pod: str
    template: PodTemplate
    assigned_ns: int
    deadline_ns: int | None
    block: NDArray[np.int64]


class _Row:
    """The last values set for one node.

    Attributes:
        measured: FILTER and SCORE start from measured usage.
        prod: a threshold compares the usage of prod pods; their part is summed up only then.
        fixed: resources whose amount does not follow the node's allocatable.
        contained_ns: a pod that the report names, that was assigned no later and whose estimate window is over, adds
            nothing.
    """

    __slots__ = ("contained_ns", "fixed", "measured", "pods", "prod", "report", "thresholds")

    def __init__(self, thresholds: Thresholds, fixed: Collection[str]) -> None:
        self.thresholds = thresholds
        self.fixed = fixed
        self.report: Report | None = None
        self.measured = (False, False)
        self.prod = False
        self.contained_ns = NEVER
        self.pods: dict[str, CountedPod] = {}


class LoadCache:
    """The load of every node: a function of the last value that was set for each node, report and pod.

    Calls for different objects commute, so a State may make them in the order in which its contexts arrive. Rows are
    the caller's: small integers, one per node, never given to another node before both its parts are set to None and
    its pods are released.

    Attributes:
        resources: names of the columns, sorted.
        arrays: loads and limits by row.
        templates: estimates of pods.
    """

    def __init__(self, args: LoadAwareArgs) -> None:
        self.args = args
        self.resources = args.resources()
        self.arrays = LoadArrays(len(self.resources))
        self.templates = PodTemplates(args, self.resources)
        self._thresholds = default = default_thresholds(args)
        self._default_percents = self._percents(default.usage), self._percents(default.prod)
        self._score_window = score_window(args)
        self._zero = (0,) * len(self.resources)
        self._nothing = int64((self._zero,) * 3)
        self._rows: dict[int, _Row] = {}
        self._where: dict[str, _Row] = {}  # uid -> the row on which it counts
        self._scores_prod = bool(args.score_according_prod_usage)

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets a node's allocatable and thresholds; None: the node is deleted."""
        state, default = self._row(row), self._thresholds
        before, state.thresholds = state.thresholds, node_thresholds(node, default) if node else default
        prod_before = state.prod
        amounts = estimate_node(node) if node else {}
        state.fixed = raw_amounts(node) if node else self.resources
        self.arrays.set_allocatable(row, tuple(bounded(amounts.get(name, 0)) for name in self.resources))
        self._evaluate(row, state)
        if before.window != state.thresholds.window or prod_before != state.prod:
            self._add_up(row, state)

    def set_metric(
        self, row: int, metric: NodeMetric | None, earlier_ns: int | None = None, pods: bytes | None = None
    ) -> None:
        """Sets a node's report; None: there is none.

        Args:
            earlier_ns: `report_time_ns` of the node's last report that had a time. It stays in force for a report
                without one, so a State keeps it next to the report.
            pods: the pods of the report, for `reported_pods`; None: those that are in the object.
        """
        state = self._row(row)
        state.report = read_report(metric, self.resources, self.args, earlier_ns, pods) if metric else None
        self._evaluate(row, state)
        self._add_up(row, state)

    def count(
        self,
        uid: str,
        row: int,
        name: str,
        template: PodTemplate,
        assigned_ns: int,
        initialized_ns: int | None,
    ) -> None:
        """Counts a pod on a node from an instant on; an earlier count of it is replaced.

        Args:
            name: `namespace/name`, the pod's key in reports.
            initialized_ns: the end of its init containers, None before.
        """
        if uid in self._where:
            self.release(uid)
        state = self._rows.get(row) or self._row(row)
        deadline = _deadline_ns(template, assigned_ns, initialized_ns)
        block = self._added(state, name, template, assigned_ns, deadline)
        self._where[uid] = state
        state.pods[uid] = CountedPod(row, name, template, assigned_ns, deadline, block)
        if block is not self._nothing:
            self.arrays.loads[:, :, row] += block

    def release(self, uid: str) -> None:
        """Counts a pod no longer; no effect for one that does not count."""
        state = self._where.pop(uid, None)
        if state is not None:
            held = state.pods.pop(uid)
            if held.block is not self._nothing:
                self.arrays.loads[:, :, held.row] -= held.block

    def would_add(self, row: int, name: str, template: PodTemplate, assigned_ns: int) -> NDArray[np.int64]:
        """Returns int64[3, resources]: the amounts that a pod would add to a node's loads, were it placed there."""
        state = self._row(row)
        deadline = _deadline_ns(template, assigned_ns, None)
        return self._added(state, name, template, assigned_ns, deadline)

    def add_capacity(self, arrays: LoadArrays, row: int, deltas: Mapping[str, int]) -> None:
        """Sets a node's capacity and limits in a cycle's own arrays, as if its allocatable had changed.

        Args:
            deltas: resource -> amount that is added.
        """
        state = self._row(row)
        sizes = arrays.allocatable[:, row].tolist()
        arrays.set_allocatable(
            row,
            [
                size if name in state.fixed or name not in deltas else bounded(max(size + deltas[name], 0))
                for name, size in zip(self.resources, sizes, strict=True)
            ],
        )
        arrays.set_limits(row, *self._limits_of(state))

    def report(self, row: int) -> Report | None:
        """The node's report, if there is one."""
        return self._rows[row].report if row in self._rows else None

    def shares(self, row: int) -> Iterator[tuple[CountedPod, PodShare]]:
        """The pods that count on a node, each with the amounts that it adds."""
        state = self._rows.get(row)
        for held in state.pods.values() if state else ():
            report = state.report if state else None
            yield held, self._share(report, held.pod, held.template, held.assigned_ns, held.deadline_ns)

    def _row(self, row: int) -> _Row:
        state = self._rows.get(row)
        if state is None:
            self.arrays.grow(row + 1)
            state = self._rows[row] = _Row(self._thresholds, self.resources)
        return state

    def _add_up(self, row: int, state: _Row) -> None:
        """Sums up a node's loads again: its measured usage, and each pod's block by the present report."""
        report, zero = state.report, self._zero
        bases: tuple[Vector | None, Vector | None] = (None, None)
        if report is not None:
            bases = (base_load(report, state.thresholds.window), base_load(report, self._score_window))
        state.measured = (bases[0] is not None, bases[1] is not None)
        total = int64((bases[0] or zero, bases[1] or zero, report.system if report else zero))
        trusted = report is not None and all(state.measured) and not state.prod
        state.contained_ns = report.clock_ns - report.interval_ns if report is not None and trusted else NEVER
        for uid, held in state.pods.items():
            block = self._added(state, held.pod, held.template, held.assigned_ns, held.deadline_ns)
            if block is not held.block:
                state.pods[uid] = held._replace(block=block)
            if block is not self._nothing:
                total += block
        self.arrays.loads[:, :, row] = total

    def _added(
        self, state: _Row, name: str, template: PodTemplate, assigned_ns: int, deadline: int | None
    ) -> NDArray[np.int64]:
        """int64[3, resources], read-only: the amounts that a pod adds to a node's loads."""
        report = state.report
        if report is None or name not in report.pods.pods:
            if template.unreported is not None:
                return template.unreported[state.prod and report is not None]
        elif assigned_ns <= state.contained_ns and deadline is None:
            return self._nothing
        return self._block(state, self._share(report, name, template, assigned_ns, deadline))

    def _share(
        self, report: Report | None, pod: str, template: PodTemplate, assigned_ns: int, deadline: int | None
    ) -> PodShare:
        return share_of_pod(
            report,
            pod,
            template.estimate,
            assigned_ns,
            deadline,
            is_prod=template.is_prod,
            resources=self.resources,
        )

    def _block(self, state: _Row, share: PodShare) -> NDArray[np.int64]:
        zero = self._zero
        usage, delta = (share.prod_usage, share.prod_delta) if state.prod else (None, None)
        filtered = share.node_delta if state.measured[0] else share.estimated
        scored = share.node_delta if state.measured[1] else share.estimated
        prod = tuple(map(sum, zip(usage, delta, strict=True))) if usage and delta else usage or delta
        if not (filtered or scored or prod):
            return self._nothing
        return int64((filtered or zero, scored or zero, prod or zero))

    def _evaluate(self, row: int, state: _Row) -> None:
        """Computes the limits and expiry times of a node from its thresholds and its report."""
        arrays, report, thresholds = self.arrays, state.report, state.thresholds
        usage, prod, is_prod_mode = self._percents_of(state)
        arrays.prod_mode[row] = is_prod_mode
        state.prod = self._scores_prod or is_prod_mode
        arrays.windowed[row] = thresholds.window is not None
        arrays.set_limits(row, *self._limits_of(state))
        expires_ns = _expires_ns(report, self.args.expiration_ns)
        for kind, percents in ((ANY_POD, usage), (PROD_POD, prod)):
            arrays.expires_ns[kind, row] = expires_ns if report is not None and any(percents) else FOREVER
        arrays.scored_until_ns[row] = expires_ns if report is not None and report.usage is not None else NEVER

    def _limits_of(self, state: _Row) -> tuple[Sequence[int], Sequence[int]]:
        """Percents for any pod and for prod pods; 0 where nothing is measured."""
        if state.report is None or state.report.usage is None:
            return self._zero, self._zero
        return self._percents_of(state)[:2]

    def _percents_of(self, state: _Row) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
        """Percents for any pod and for prod pods, and True where prod pods have their own."""
        usage, prod = self._default_percents
        if state.thresholds is not self._thresholds:
            usage, prod = self._percents(state.thresholds.usage), self._percents(state.thresholds.prod)
        return usage, prod if any(prod) else usage, any(prod)

    def _percents(self, annotated: Percents) -> tuple[int, ...]:
        return tuple(annotated.get(name, 0) for name in self.resources)


def _deadline_ns(template: PodTemplate, assigned_ns: int, initialized_ns: int | None) -> int | None:
    return None if template.windows is None else deadline_ns(template.windows, assigned_ns, initialized_ns)


def _expires_ns(report: Report | None, expiration_ns: int) -> int:
    if report is None or report.updated_ns is None:
        return NEVER
    # A time beyond int64 counts as the nearest int64.
    return min(max(report.updated_ns + expiration_ns, NEVER), FOREVER)
