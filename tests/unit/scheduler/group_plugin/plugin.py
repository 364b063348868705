"""LabelGroups: it names the group of a pod, and filters nothing."""

from typing import ClassVar

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.cycle_extension_points import PluginCycleState
from services.scheduler.framework.plugin import Plugin
from services.scheduler.framework.spec import PluginSpec
from services.scheduler.state.pod_equivalence_class import PodClass
from tests.unit.scheduler.group_plugin import GROUP, SPEC


class LabelGroups(Plugin):
    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:
        return PluginCycleState()

    def unit_of(self, pod_class: PodClass) -> str:
        group = pod_class.labels.get(GROUP, "")
        return f"{pod_class.namespace}/{group}" if group else ""
