"""Coscheduling: gangs, in the queue and in a cycle, and pods that are near each other in the network.

Source: spec/scheduler-workloads.md 2.
"""

from typing import ClassVar

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.gang_grouping_interface import PodGrouping
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.plugins.coscheduling import SPEC
from services.scheduler.plugins.coscheduling.args import CoschedulingArgs
from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.plugins.coscheduling.nearness_by_network_selector import NearnessState
from services.scheduler.state.scheduler_state import SchedulerState


class Coscheduling(Plugin):
    """Groups the pods of gangs; filters no node, and scores nodes for pods with a `network-topology-selector`."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: CoschedulingArgs = CoschedulingArgs()) -> None:  # noqa: B008  immutable
        self.args = args

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state; it reads the network's tree and the pods of the snapshot."""
        return NearnessState(snapshot)

    def new_grouping(self, view: SchedulerState) -> PodGrouping:
        """The gangs of a State."""
        return GangGrouping(view, self.args)
