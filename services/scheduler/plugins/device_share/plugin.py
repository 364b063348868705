"""DeviceShare as a plugin of a profile.

The rules are in `choose_devices.py` and `choose_gpus.py`. Pods that request no devices, and nodes without a Device,
cost nothing.

Source: spec/scheduler-workloads.md 3; upstream pkg/scheduler/plugins/deviceshare.
"""

from typing import ClassVar

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share import SPEC
from services.scheduler.plugins.device_share.args import DeviceArgs
from services.scheduler.plugins.device_share.filter_score_reserve_over_all_nodes import DeviceState
from services.scheduler.plugins.device_share.node_cache import DeviceCache
from services.scheduler.plugins.device_share.requests_cached_by_class import RequestsByClass
from services.scheduler.plugins.helper.rejections import CycleRejections, RejectionIds
from services.scheduler.state.pod_equivalence_class import PodClass


class DeviceShare(Plugin):
    """Rejects nodes without the requested devices, scores by free amounts, and allocates devices.

    A filter result is the number of a rejection; numbers never leave the process.
    """

    spec: ClassVar[PluginSpec] = SPEC

    def __init__(self, args: DeviceArgs) -> None:
        self.settings = args.settings
        self.requests = RequestsByClass()
        self.rejections = RejectionIds()

    def new_cache(self) -> PluginCache:
        """Devices and allocations of nodes, by row."""
        return DeviceCache()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:
        """The state, which counts the allocations of the cycle."""
        assert isinstance(plugin_cache, DeviceCache), "the index hands back what new_cache made"
        return DeviceState(
            self.settings, self.requests, CycleRejections(self.rejections), snapshot, plugin_cache, now_ns
        )

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The first reason that applies."""
        return self.rejections[result].reasons

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption changes neither requests nor the devices that there are."""
        return self.rejections[result].unresolvable
