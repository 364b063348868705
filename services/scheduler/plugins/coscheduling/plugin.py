"""Coscheduling: gangs, in the queue and in a cycle. Source: spec/scheduler-workloads.md 2."""

from typing import ClassVar

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.gang_grouping_interface import PodGrouping
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_cycle_state import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.plugins.coscheduling import SPEC
from services.scheduler.plugins.coscheduling.args import CoschedulingArgs
from services.scheduler.plugins.coscheduling.gang_placement_units import GangGrouping
from services.scheduler.state.scheduler_state import SchedulerState


class Coscheduling(Plugin):
    """Groups the pods of gangs; it filters and scores no node."""

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: CoschedulingArgs = CoschedulingArgs()) -> None:  # noqa: B008  immutable
        self.args = args

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """The state; it counts nothing."""
        return PluginCycleState()

    def new_grouping(self, view: SchedulerState) -> PodGrouping:
        """The gangs of a State."""
        return GangGrouping(view, self.args)
