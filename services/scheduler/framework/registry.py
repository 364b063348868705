"""The plugins by name: those that this scheduler has, and those that Kubernetes and Koordinator have besides.

A configuration may name the latter, because upstream's own does; they are passed over, visibly. A name in neither list is a
mistake. To add a plugin: write it under `plugins/`, give it a factory here, and take it off ELSEWHERE.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from services.scheduler.framework.plugin import Plugin
from services.scheduler.plugins.image_locality.plugin import ImageLocality
from services.scheduler.plugins.inter_pod_affinity.args import read_inter_pod_args
from services.scheduler.plugins.inter_pod_affinity.plugin import InterPodAffinity
from services.scheduler.plugins.load_aware_scheduling import read_args as read_load_aware_args
from services.scheduler.plugins.load_aware_scheduling.plugin import LoadAwareScheduling
from services.scheduler.plugins.node_affinity.args import read_affinity_args
from services.scheduler.plugins.node_affinity.plugin import NodeAffinity
from services.scheduler.plugins.node_name.plugin import NodeName
from services.scheduler.plugins.node_numa_resource.args import read_numa_args
from services.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from services.scheduler.plugins.node_ports.plugin import NodePorts
from services.scheduler.plugins.node_resources_balanced_allocation.args import read_balance_args
from services.scheduler.plugins.node_resources_balanced_allocation.plugin import NodeResourcesBalancedAllocation
from services.scheduler.plugins.node_resources_fit.args import read_fit_args
from services.scheduler.plugins.node_resources_fit.plugin import NodeResourcesFit
from services.scheduler.plugins.node_resources_fit_plus.args import read_fit_plus_args
from services.scheduler.plugins.node_resources_fit_plus.plugin import NodeResourcesFitPlus
from services.scheduler.plugins.node_unschedulable.plugin import NodeUnschedulable
from services.scheduler.plugins.node_volume_limits.plugin import NodeVolumeLimits
from services.scheduler.plugins.pod_topology_spread.args import read_spread_args
from services.scheduler.plugins.pod_topology_spread.plugin import PodTopologySpread
from services.scheduler.plugins.scarce_resource_avoidance.args import read_scarce_args
from services.scheduler.plugins.scarce_resource_avoidance.plugin import ScarceResourceAvoidance
from services.scheduler.plugins.scheduling_hint.args import read_hint_args
from services.scheduler.plugins.scheduling_hint.plugin import SchedulingHint
from services.scheduler.plugins.taint_toleration.plugin import TaintToleration
from services.scheduler.plugins.volume_binding.plugin import VolumeBinding
from services.scheduler.plugins.volume_restrictions.plugin import VolumeRestrictions
from services.scheduler.plugins.volume_zone.plugin import VolumeZone

Args = Mapping[str, Any]


class Known(NamedTuple):
    """A plugin that this scheduler has.

    Attributes:
        make: from the decoded `args` of its pluginConfig ({} without one), and where they stand.
        filters, scores: the points at which it does something.
        pre_filters: whether it narrows the nodes down where it is enabled at preFilter, before all filters.
        reads_args: whether it has arguments that `make` reads.
    """

    make: Callable[[Args, str], Plugin]
    filters: bool
    scores: bool
    reads_args: bool = False
    pre_filters: bool = False


_A = TypeVar("_A")


def _plain(plugin: Callable[[], Plugin], *, filters: bool = False, scores: bool = False) -> Known:
    """A plugin without arguments."""
    return Known(lambda _, __: plugin(), filters=filters, scores=scores)


def _reading(
    read: Callable[[Args, str], _A],
    plugin: Callable[[_A], Plugin],
    *,
    filters: bool = False,
    scores: bool = False,
    pre_filters: bool = False,
) -> Known:
    """A plugin with arguments, and what reads them."""
    return Known(
        lambda args, source: plugin(read(args, source)),
        filters=filters,
        scores=scores,
        reads_args=True,
        pre_filters=pre_filters,
    )


PLUGINS: Mapping[str, Known] = {
    "NodeUnschedulable": _plain(NodeUnschedulable, filters=True),
    "NodeName": _plain(NodeName, filters=True),
    "TaintToleration": _plain(TaintToleration, filters=True, scores=True),
    "NodeAffinity": _reading(read_affinity_args, NodeAffinity, filters=True, scores=True),
    "NodePorts": _plain(NodePorts, filters=True),
    "NodeResourcesFit": _reading(read_fit_args, NodeResourcesFit, filters=True, scores=True),
    "VolumeRestrictions": _plain(VolumeRestrictions, filters=True),
    "NodeVolumeLimits": _plain(NodeVolumeLimits, filters=True),
    "VolumeBinding": _plain(VolumeBinding, filters=True),
    "VolumeZone": _plain(VolumeZone, filters=True),
    "PodTopologySpread": _reading(read_spread_args, PodTopologySpread, filters=True, scores=True),
    "InterPodAffinity": _reading(read_inter_pod_args, InterPodAffinity, filters=True, scores=True),
    "NodeResourcesBalancedAllocation": _reading(read_balance_args, NodeResourcesBalancedAllocation, scores=True),
    "ImageLocality": _plain(ImageLocality, scores=True),
    "LoadAwareScheduling": _reading(read_load_aware_args, LoadAwareScheduling, filters=True, scores=True),
    "NodeNUMAResource": _reading(read_numa_args, NodeNUMAResource, filters=True, scores=True),
    "SchedulingHint": _reading(read_hint_args, SchedulingHint, pre_filters=True),
    "NodeResourcesFitPlus": _reading(read_fit_plus_args, NodeResourcesFitPlus, scores=True),
    "ScarceResourceAvoidance": _reading(read_scarce_args, ScarceResourceAvoidance, scores=True),
}
"""Name -> how it is made. In the order in which the stock ones filter."""

MULTI_POINT: Mapping[str, int] = {
    "SchedulingGates": 0, "PrioritySort": 0, "NodeUnschedulable": 0, "NodeName": 0, "TaintToleration": 3,
    "NodeAffinity": 2, "NodePorts": 0, "NodeResourcesFit": 1, "VolumeRestrictions": 0, "NodeVolumeLimits": 0,
    "VolumeBinding": 0, "VolumeZone": 0, "PodTopologySpread": 2, "InterPodAffinity": 2, "DefaultPreemption": 0,
    "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "DefaultBinder": 0,
}  # fmt: skip
"""What every profile has unless it says otherwise, in order, with score weights. Source: spec/scheduler-core.md 2."""

BUILT_IN = frozenset(("SchedulingGates", "PrioritySort", "DefaultPreemption", "DefaultBinder", "DefaultPreBind"))
"""Plugins that the queue, the cycle and the gateway are made of; of these only DefaultPreemption can be taken out."""

ELSEWHERE = frozenset((
    "DynamicResources", "NodeDeclaredFeatures",
    "Reservation", "Coscheduling", "DeviceShare", "ElasticQuota",
))  # fmt: skip
"""Plugins of Kubernetes and Koordinator that this scheduler does not have."""
