"""LoadAwareScheduling as a plugin of a profile: adapts LoadCache and LoadState to the framework.

The rules are in `filter_and_score.py` and `load_cache.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.kernel_filter_and_score_terms import LoadTerm
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.load_aware_scheduling import SPEC
from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.plugins.load_aware_scheduling.estimate_window import counts_on_node
from services.scheduler.plugins.load_aware_scheduling.estimates_by_pod_template import PodTemplate
from services.scheduler.plugins.load_aware_scheduling.filter_and_score import LoadState, reasons
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from services.scheduler.plugins.load_aware_scheduling.node_debug_view import node_view
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment, PodRecord
from services.scheduler.state.usage_records import MetricRecord
from shared.kube.instants import BadTime, instant_ns
from shared.kube.node import Node
from shared.kube.quantity import BadQuantity


class LoadAwareScheduling(Plugin):
    """Rejects nodes whose measured usage would exceed the thresholds; prefers those with the most free capacity."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: LoadAwareArgs) -> None:
        self.args = args
        self._reasons = reasons(args.resources())

    def new_cache(self) -> PluginCache:
        """Measured and estimated load by row."""
        return LoadAwareCache(self.args)

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:
        """The state; a filter result is an index into `filter_and_score.reasons`."""
        assert isinstance(plugin_cache, LoadAwareCache), "the index hands back what new_cache made"
        plugin_cache.load_cache.arrays.grow(snapshot.size)  # a row may exist because of a pod only
        return _LoadAwareSchedulingState(LoadState(plugin_cache.load_cache), plugin_cache.load_cache, now_ns)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The first resource that is exceeded, or an expired report."""
        return (self._reasons[result],)


class LoadAwareCache(PluginCache):
    """LoadCache, updated by CycleInputs.

    Attributes:
        load_cache: the load of the nodes.
    """

    def __init__(self, args: LoadAwareArgs) -> None:
        self.load_cache = LoadCache(args)

    def view(self, row: int) -> dict[str, Any]:
        """The load of the node in a row with its parts, for the debug view."""
        return node_view(self.load_cache, row)

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row, None when it is deleted."""
        try:
            self.load_cache.set_node(row, node)
        except BadQuantity:
            self.load_cache.set_node(row, None)  # without a readable allocatable there is nothing to compare with

    def set_metric(self, row: int, metric_record: MetricRecord | None) -> None:
        """Sets the node's report; None: there is none."""
        if metric_record is None:
            self.load_cache.set_metric(row, None)
            return
        metric, updated, pods = metric_record[:3]
        try:
            self.load_cache.set_metric(row, metric, instant_ns(updated) if updated else None, pods)
        except (BadQuantity, BadTime):
            self.load_cache.set_metric(row, None)  # an unreadable report counts as none

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the pod, unless it stands for a Reservation, or its requests cannot be read, so that there is no estimate."""
        pod_class = assignment.load_class or assignment.pod_class
        template = pod_class.cached.get(self)
        if template is None:
            if pod_class.fault or not counts_on_node(pod_class.pod):
                return
            template = pod_class.cached[self] = self.load_cache.templates.of(pod_class.pod, pod_class.amounts)
        self.load_cache.count(
            uid, row, assignment.name, template, assignment.assigned_ns, assignment.initialized_ns or None
        )

    def release(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002 (the load_cache knows by uid)
        """Counts the pod no longer."""
        self.load_cache.release(uid)


class _LoadAwareSchedulingState(PluginCycleState):
    """LoadState at the time of the cycle."""

    def __init__(self, state: LoadState, load_cache: LoadCache, now_ns: int) -> None:
        self._state = state
        self._load_cache = load_cache
        self._now_ns = now_ns
        self._matched_prediction = True
        self._expected: list[bool] = []
        self._templates: dict[PodClass, PodTemplate] = {}  # of classes that count

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True where a node has a limit for pods of its priority."""
        return self._state.limits(pod_class.pod)

    def score_term(self, pod_class: PodClass) -> LoadTerm | None:
        """The capacity that the pod would leave."""
        self._load_cache.templates.of(pod_class.pod, pod_class.amounts)
        return self._state.score_term(pod_class.pod, self._now_ns)

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64:
        return self._state.filter(pod_class.pod, rows, self._now_ns)

    def score(self, pod_class: PodClass, rows: Rows) -> Int64:
        return self._state.score(pod_class.pod, rows, self._now_ns)

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        return self._state.filter_at(pod_class.pod, row, self._now_ns)

    def score_at(self, pod_class: PodClass, row: int) -> int:
        return self._state.score_at(pod_class.pod, row, self._now_ns)

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:
        template = self._templates.get(pod_class) or self._template_of(pod_class)
        if template is None:
            self._matched_prediction = False
            return
        block = self._state.add(row, pod.name, template, self._now_ns)
        unreported = template.unreported
        self._matched_prediction = unreported is not None and (block is unreported[0] or block is unreported[1])

    def _template_of(self, pod_class: PodClass) -> PodTemplate | None:
        """Returns the template of a class; None where its pods do not count on their nodes."""
        if not counts_on_node(pod_class.pod):
            return None
        template = self._templates[pod_class] = self._load_cache.templates.of(pod_class.pod)
        return template

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:
        if counts_on_node(pod_class.pod):
            self._state.undo_add(row, pod.name, self._load_cache.templates.of(pod_class.pod), self._now_ns)

    def overlay(self, rows: Int64, deltas: Mapping[str, Int64]) -> None:
        self._state.add_capacity(rows, deltas)

    def undo_overlay(self) -> None:
        self._state.undo_add_capacity()

    def count_predicted(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> int:
        """The number of pods, from the first on, that no report names yet."""
        names = (pod.name for pod in pods)
        self._expected = self._state.unreported_of(
            rows, names, self._load_cache.templates.of(pod_class.pod), self._now_ns
        )
        return len(self._expected)

    def place_all(self, pods: Sequence[PodRecord], pod_class: PodClass, rows: Sequence[int]) -> None:
        self._state.add_unreported(rows, self._load_cache.templates.of(pod_class.pod), self._expected[: len(pods)])
        self._matched_prediction = True

    def can_predict(self, pod_class: PodClass) -> bool:
        """Returns True where pods of the class count with its estimate only."""
        return self._state.can_predict(pod_class.pod)

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> PluginCycleState | None:  # noqa: ARG002
        """The state with the class's estimate on every node; usage of prod pods is not predicted."""
        fuller = self._state.after_one_more(pod_class.pod)
        return None if fuller is None else _LoadAwareSchedulingState(fuller, self._load_cache, self._now_ns)

    def matched_prediction(self) -> bool:
        """Returns True where the last pod counted with exactly its estimate."""
        return self._matched_prediction
