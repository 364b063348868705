"""NodeResourcesFitPlus: scores nodes by the resources that a pod requests, each by a strategy of its own.

    score = floor( sum_r part_r * weight_r / sum_r weight_r ) over the configured resources that the pod requests
    part  = floor( (capacity - needed) * 100 / capacity )  LeastAllocated, 0 where needed > capacity
            floor( min(needed, capacity) * 100 / capacity ) MostAllocated
            0 for any other strategy, and where capacity is 0

100 where no resource counts. Unlike in NodeResourcesFit, a resource that the node lacks keeps its weight.

Source: spec/scheduler-core.md 5; upstream pkg/scheduler/plugins/noderesourcefitplus.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import CPU, MEMORY
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import MAX_SCORE, Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.scoring_strategy_args import LEAST, MOST
from services.scheduler.plugins.node_resources_fit_plus import SPEC
from services.scheduler.plugins.node_resources_fit_plus.args import Preference
from services.scheduler.state.pod_equivalence_class import LARGEST_AMOUNT, PodClass
from shared.domain.pod_requests import DEFAULT_REQUESTS
from shared.kube.pod import Container, Pod
from shared.kube.quantity import amount, nanos

_COUNTED_WITH_DEFAULTS = {"cpu": CPU, "memory": MEMORY}  # resource -> column of CycleSnapshot.nonzero_requested


class NodeResourcesFitPlus(Plugin):
    """Scores nodes by the resources that the pod requests; rejects none."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, preferences: Mapping[str, Preference]) -> None:
        self.preferences = preferences

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state; its scores follow the requests of pods that the cycle places."""
        return _NodeResourcesFitPlusState(self, snapshot)

    def counted(self, pod_class: PodClass) -> tuple[tuple[str, int, Preference], ...]:
        """The resources that count for a class: name, amount that the pod adds, strategy and weight."""
        counted: tuple[tuple[str, int, Preference], ...] | None = pod_class.cached.get(self)
        if counted is None:
            counted = pod_class.cached[self] = tuple(
                (name, min(added_by(pod_class.pod, name), LARGEST_AMOUNT), preference)
                for name, preference in sorted(self.preferences.items())
                if pod_class.request.get(name, 0) > 0 and name != "pods"
            )
        return counted


class _NodeResourcesFitPlusState(PluginCycleState):
    """State of NodeResourcesFitPlus for one cycle."""

    def __init__(self, plugin: NodeResourcesFitPlus, snapshot: CycleSnapshot) -> None:
        self._plugin = plugin
        self._snapshot = snapshot

    def score(self, pod_class: PodClass, rows: Rows) -> Int64:
        """The formula of the module docstring."""
        snapshot = self._snapshot
        count = len(snapshot.pods[rows])
        total, weights = np.zeros(count, np.int64), 0
        for name, added, preference in self._plugin.counted(pod_class):
            weights += preference.weight
            column = snapshot.table.columns.get(name)
            if column is None or column >= snapshot.requested.shape[1]:
                continue
            capacity = snapshot.allocatable[: snapshot.size, column][rows]
            default = _COUNTED_WITH_DEFAULTS.get(name)
            used = snapshot.requested[:, column] if default is None else snapshot.nonzero_requested[:, default]
            needed = used[rows] + added
            divisor = np.maximum(capacity, 1)
            if preference.type == LEAST:
                part = np.where((needed > capacity) | (capacity == 0), 0, (capacity - needed) * MAX_SCORE // divisor)
            elif preference.type == MOST:
                part = np.minimum(needed, capacity) * MAX_SCORE // divisor
            else:
                continue
            total += part * preference.weight
        return total // weights if weights else np.full(count, MAX_SCORE, np.int64)

    def can_predict(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns True for every class."""
        return True

    def after_one_more(self, pod_class: PodClass, snapshot: CycleSnapshot) -> "_NodeResourcesFitPlusState":  # noqa: ARG002
        """The state with one more pod of the class on every node."""
        return _NodeResourcesFitPlusState(self._plugin, snapshot)


def added_by(pod: Pod, resource: str) -> int:
    """The amount that an incoming pod adds of a resource: containers, then init containers in order, then overhead.

    A container without cpu or memory counts with the defaults. As upstream has it, the order matters: a sidecar adds
    to the amount so far, an ordinary init container raises it to its own. Pod-level requests do not count.
    """
    total = sum(_of(container, resource) for container in pod.spec.containers)
    for container in pod.spec.init_containers:
        size = _of(container, resource)
        total = total + size if container.restart_policy == "Always" else max(total, size)
    return total + amount(resource, nanos((pod.spec.overhead or {}).get(resource, "0")))


def _of(container: Container, resource: str) -> int:
    given = (container.resources.requests if container.resources else None) or {}
    if resource in given:
        return amount(resource, nanos(given[resource]))
    return amount(resource, DEFAULT_REQUESTS.get(resource, 0))
