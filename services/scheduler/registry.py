"""The plugins by name: those that this scheduler has, and those that Kubernetes and Koordinator have besides.

A configuration may name the latter, because upstream's own does; they are passed over, visibly. A name in neither list is a
mistake. To add a plugin: write it under `plugins/`, give it a factory here, and take it off ELSEWHERE.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from services.scheduler.framework import Plugin
from services.scheduler.plugins.fit_args import read_fit_args
from services.scheduler.plugins.image_locality import ImageLocality
from services.scheduler.plugins.inter_pod_affinity import InterPodAffinity, read_inter_pod_args
from services.scheduler.plugins.load_aware import read_args as read_load_aware_args
from services.scheduler.plugins.load_aware_scheduling import LoadAwareScheduling
from services.scheduler.plugins.node_affinity import NodeAffinity, read_affinity_args
from services.scheduler.plugins.node_name import NodeName
from services.scheduler.plugins.node_numa_resource import NodeNUMAResource
from services.scheduler.plugins.node_ports import NodePorts
from services.scheduler.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    read_balance_args,
)
from services.scheduler.plugins.node_resources_fit import NodeResourcesFit
from services.scheduler.plugins.node_resources_fit_plus import NodeResourcesFitPlus, read_fit_plus_args
from services.scheduler.plugins.node_unschedulable import NodeUnschedulable
from services.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from services.scheduler.plugins.numa.args import read_numa_args
from services.scheduler.plugins.pod_topology_spread import PodTopologySpread
from services.scheduler.plugins.scarce_resource_avoidance import ScarceResourceAvoidance, read_scarce_args
from services.scheduler.plugins.scheduling_hint import SchedulingHint, read_hint_args
from services.scheduler.plugins.taint_toleration import TaintToleration
from services.scheduler.plugins.topology_spread_constraints import read_spread_args
from services.scheduler.plugins.volume_binding import VolumeBinding
from services.scheduler.plugins.volume_restrictions import VolumeRestrictions
from services.scheduler.plugins.volume_zone import VolumeZone

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


PLUGINS: Mapping[str, Known] = {
    "NodeUnschedulable": Known(lambda _, __: NodeUnschedulable(), filters=True, scores=False),
    "NodeName": Known(lambda _, __: NodeName(), filters=True, scores=False),
    "TaintToleration": Known(lambda _, __: TaintToleration(), filters=True, scores=True),
    "NodeAffinity": Known(
        lambda args, source: NodeAffinity(read_affinity_args(args, source)), filters=True, scores=True, reads_args=True
    ),
    "NodePorts": Known(lambda _, __: NodePorts(), filters=True, scores=False),
    "NodeResourcesFit": Known(
        lambda args, source: NodeResourcesFit(read_fit_args(args, source)), filters=True, scores=True, reads_args=True
    ),
    "VolumeRestrictions": Known(lambda _, __: VolumeRestrictions(), filters=True, scores=False),
    "NodeVolumeLimits": Known(lambda _, __: NodeVolumeLimits(), filters=True, scores=False),
    "VolumeBinding": Known(lambda _, __: VolumeBinding(), filters=True, scores=False),
    "VolumeZone": Known(lambda _, __: VolumeZone(), filters=True, scores=False),
    "PodTopologySpread": Known(
        lambda args, source: PodTopologySpread(read_spread_args(args, source)),
        filters=True,
        scores=True,
        reads_args=True,
    ),
    "InterPodAffinity": Known(
        lambda args, source: InterPodAffinity(read_inter_pod_args(args, source)),
        filters=True,
        scores=True,
        reads_args=True,
    ),
    "NodeResourcesBalancedAllocation": Known(
        lambda args, source: NodeResourcesBalancedAllocation(read_balance_args(args, source)),
        filters=False,
        scores=True,
        reads_args=True,
    ),
    "ImageLocality": Known(lambda _, __: ImageLocality(), filters=False, scores=True),
    "LoadAwareScheduling": Known(
        lambda args, source: LoadAwareScheduling(read_load_aware_args(args, source)),
        filters=True,
        scores=True,
        reads_args=True,
    ),
    "NodeNUMAResource": Known(
        lambda args, source: NodeNUMAResource(read_numa_args(args, source)), filters=True, scores=True, reads_args=True
    ),
    "SchedulingHint": Known(
        lambda args, source: SchedulingHint(read_hint_args(args, source)),
        filters=False,
        scores=False,
        reads_args=True,
        pre_filters=True,
    ),
    "NodeResourcesFitPlus": Known(
        lambda args, source: NodeResourcesFitPlus(read_fit_plus_args(args, source)),
        filters=False,
        scores=True,
        reads_args=True,
    ),
    "ScarceResourceAvoidance": Known(
        lambda args, source: ScarceResourceAvoidance(read_scarce_args(args, source)),
        filters=False,
        scores=True,
        reads_args=True,
    ),
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
"""Plugins that the queue, the round and the gateway are made of; of these only DefaultPreemption can be taken out."""

ELSEWHERE = frozenset((
    "DynamicResources", "NodeDeclaredFeatures",
    "Reservation", "Coscheduling", "DeviceShare", "ElasticQuota",
))  # fmt: skip
"""Plugins of Kubernetes and Koordinator that this scheduler does not have."""
