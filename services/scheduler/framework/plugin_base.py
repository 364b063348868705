"""Base class of plugins.

A plugin evaluates all nodes at once. Its filter gives each node a result (0 passes), its score a number; both in
integers as upstream has them. In a cycle, pods are placed one after the other, so a plugin makes a PluginCycleState for
each cycle. A plugin that keeps data of its own over the nodes (measured load, NUMA zones) makes a cache, which the
cycle inputs keep up to date.

Filters run in the order of the profile; the first plugin that rejects a node is that node's reason. Source:
spec/scheduler-core.md 1.1, 1.5.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from services.scheduler.cache.cluster_objects import ClusterObjects
from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.nodes import NodeTable
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.gang_grouping_interface import PodGrouping
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import Normalize, PluginSpec
from services.scheduler.framework.post_filter import PostFilterPlugin
from services.scheduler.framework.pre_bind_preparation import READY, Readiness
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.scheduler_state import SchedulerState
from shared.kube.instants import SECOND

MAX_SCORE = 100
DEFAULT_PREPARATION_NS = 600 * SECOND
"""For how long a node is held for a pod whose volumes are being prepared. Source: Kubernetes'
VolumeBindingArgs.bindTimeoutSeconds."""


class Plugin(ABC):
    """A plugin of a profile. It keeps no data of a cycle: that is in its PluginCycleState, and what outlasts a cycle in
    its cache.

    Attributes:
        spec: its declaration.
        name, normalize, node_only, cross_node: those of the declaration, for code that runs often.
    """

    spec: ClassVar[PluginSpec]
    name: ClassVar[str]
    normalize: ClassVar[Normalize]
    node_only: ClassVar[bool]
    cross_node: ClassVar[bool]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if spec := cls.__dict__.get("spec"):
            cls.name, cls.normalize = spec.name, spec.normalize
            cls.node_only, cls.cross_node = spec.node_only, spec.cross_node

    def new_cache(self) -> PluginCache | None:
        """Makes an empty cache, if the plugin needs one; the cycle inputs keep it up to date."""
        return None

    @abstractmethod
    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:
        """Makes the working copy for the cycle that is decided at `now_ns`; `plugin_cache` is what `new_cache` returned."""

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The reasons for a filter result other than 0; several where several hold."""
        return ()

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Returns True where no preemption on the node would help: upstream's UnschedulableAndUnresolvable."""
        return False

    def may_preempt(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns False where no pod may be evicted for pods of the class that no node admits."""
        return True

    def preferred_nodes(self, pod_class: PodClass) -> Sequence[str]:  # noqa: ARG002
        """Names of nodes that come before all scores; the first feasible one is chosen. Declared by `prefers_nodes`."""
        return ()

    def readiness(
        self,
        cluster_objects: ClusterObjects,  # noqa: ARG002
        table: NodeTable,  # noqa: ARG002
        pod_class: PodClass,  # noqa: ARG002
        node: str,  # noqa: ARG002
        saw: int,  # noqa: ARG002
    ) -> Readiness:
        """Returns the state of what was requested for a pod that a node is held for. Asked of PRE_BIND plugins.

        Args:
            saw: the `cluster` seq that the cycle had read which requested it.
        """
        return READY

    def longest_preparation_ns(self) -> int:
        """Returns for how long a node is held for a pod of a PRE_BIND plugin."""
        return DEFAULT_PREPARATION_NS

    def new_grouping(self, view: SchedulerState) -> PodGrouping:
        """Makes the grouping of a plugin that declares `groups_pods`; it follows the State."""
        raise NotImplementedError(f"{self.name} declares that it groups pods, and makes no grouping")


def make_plugin(spec: PluginSpec, args: Mapping[str, Any], source: str) -> Plugin | PostFilterPlugin:
    """Makes a plugin from the decoded `args` of its pluginConfig.

    Args:
        source: the path of the arguments in the configuration, for errors.
    """
    module, _, name = spec.implementation.partition(":")
    implementation = getattr(import_module(module), name)
    made: Plugin | PostFilterPlugin = (
        implementation(spec.read_args(args, source)) if spec.read_args else implementation()
    )
    return made


def normalized(raw: Int64, highest: int, how: Normalize) -> Int64:
    """Raw scores as 0..100, given the highest among the feasible nodes. Source: spec/scheduler-core.md 2."""
    if how is Normalize.NONE:
        return raw
    if highest == 0:
        return np.full_like(raw, MAX_SCORE if how is Normalize.DOWN else 0)
    scaled = raw * MAX_SCORE // highest
    return MAX_SCORE - scaled if how is Normalize.DOWN else scaled
