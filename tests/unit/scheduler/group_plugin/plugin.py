"""LabelGroups: it names the group of a pod, and filters nothing."""

from typing import ClassVar

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.gang_grouping_interface import ClassGrouping, PodGrouping
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from tests.unit.scheduler.group_plugin import GROUP, SPEC


class LabelGroups(Plugin):
    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:
        return PluginCycleState()

    def new_grouping(self, view: SchedulerState) -> PodGrouping:
        return ClassGrouping(_group_of)


def _group_of(pod_record: PodRecord) -> str:
    pod_class = pod_record.pod_class
    group = pod_class.labels.get(GROUP, "") if pod_class is not None else ""
    return f"{pod_record.name.partition('/')[0]}/{group}" if group else ""
