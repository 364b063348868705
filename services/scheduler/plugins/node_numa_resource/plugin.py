"""NodeNUMAResource as a plugin of a profile: CPUs of a pod's own, and the NUMA nodes of its resources.

The rules are in `filter_score_reserve_on_one_node.py`. Most pods have no requirements and most nodes no policy; for
these, all nodes are scored at once. A pod with requirements is evaluated node by node, and the results are cached until
the node changes.

Source: spec/scheduler-core.md 4; upstream pkg/scheduler/plugins/nodenumaresource.
"""

from typing import ClassVar

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.helper.rejections import CycleRejections, RejectionIds
from services.scheduler.plugins.node_numa_resource import SPEC
from services.scheduler.plugins.node_numa_resource.args import NumaArgs
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_over_all_nodes import NumaState
from services.scheduler.plugins.node_numa_resource.node_cache import NumaCache
from services.scheduler.plugins.node_numa_resource.pod_requirements_cached_by_class import RequirementsByClass
from services.scheduler.state.pod_equivalence_class import PodClass


class NodeNUMAResource(Plugin):
    """Rejects nodes without the required CPUs or NUMA zones, scores by free amounts, and allocates both.

    A filter result is the number of a rejection; numbers never leave the process.
    """

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: NumaArgs) -> None:
        self.args = args
        self.requirements = RequirementsByClass(args.bind)
        self.rejections = RejectionIds()

    def new_cache(self) -> PluginCache:
        """Options and allocations of nodes, by row."""
        return NumaCache()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state, which counts the allocations of the cycle."""
        assert isinstance(plugin_cache, NumaCache), "the index hands back what new_cache made"
        rejections = CycleRejections(self.rejections)
        return NumaState(self.args.strategies, self.requirements, rejections, snapshot, plugin_cache)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """One reason for each insufficient resource, or the first that applies."""
        return self.rejections[result].reasons

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption does not change policies, topologies and fractions of CPUs."""
        return self.rejections[result].unresolvable
