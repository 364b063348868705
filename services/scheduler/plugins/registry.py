"""Registry of the plugins of this release: one line for each.

To add a plugin: write its package with a SPEC and list it here. A plugin in `unsupported_plugin_args.py` is removed
there.
"""

from services.scheduler.framework.registry import Registry
from services.scheduler.plugins import (
    coscheduling,
    default_preemption,
    device_share,
    elastic_quota,
    gpu_packing,
    image_locality,
    inter_pod_affinity,
    interference_avoidance,
    load_aware_scheduling,
    node_affinity,
    node_name,
    node_numa_resource,
    node_ports,
    node_resources_balanced_allocation,
    node_resources_fit,
    node_resources_fit_plus,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    reservation,
    scarce_resource_avoidance,
    scheduling_hint,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from services.scheduler.plugins.argument_checks_of_unsupported_plugins import UNSUPPORTED

PLUGINS = (
    node_unschedulable.SPEC,
    node_name.SPEC,
    taint_toleration.SPEC,
    node_affinity.SPEC,
    node_ports.SPEC,
    node_resources_fit.SPEC,
    volume_restrictions.SPEC,
    node_volume_limits.SPEC,
    volume_binding.SPEC,
    volume_zone.SPEC,
    pod_topology_spread.SPEC,
    inter_pod_affinity.SPEC,
    elastic_quota.SPEC,
    coscheduling.SPEC,
    default_preemption.SPEC,
    node_resources_balanced_allocation.SPEC,
    image_locality.SPEC,
    load_aware_scheduling.SPEC,
    node_numa_resource.SPEC,
    device_share.SPEC,
    scheduling_hint.SPEC,
    node_resources_fit_plus.SPEC,
    scarce_resource_avoidance.SPEC,
    gpu_packing.FRAGMENTATION_SPEC,
    gpu_packing.PACKING_SPEC,
    interference_avoidance.SPEC,
    reservation.SPEC,
)

REGISTRY = Registry(
    PLUGINS,
    # Source: spec/scheduler-core.md 2.
    defaults={
        "SchedulingGates": 0, "PrioritySort": 0, "NodeUnschedulable": 0, "NodeName": 0, "TaintToleration": 3,
        "NodeAffinity": 2, "NodePorts": 0, "NodeResourcesFit": 1, "VolumeRestrictions": 0, "NodeVolumeLimits": 0,
        "VolumeBinding": 0, "VolumeZone": 0, "PodTopologySpread": 2, "InterPodAffinity": 2, "DefaultPreemption": 0,
        "NodeResourcesBalancedAllocation": 1, "ImageLocality": 1, "DefaultBinder": 0,
    },
    built_in=frozenset(("SchedulingGates", "PrioritySort", "DefaultBinder", "DefaultPreBind")),
    unsupported=UNSUPPORTED,
    retired=frozenset((
        "SelectorSpread", "NodePreferAvoidPods", "NodeLabel", "ServiceAffinity", "NodeResourcesLeastAllocated",
        "NodeResourcesMostAllocated", "RequestedToCapacityRatio", "EBSLimits", "GCEPDLimits",
        "AzureDiskLimits", "CinderLimits", "CompatibleDefaultPreemption", "BatchResourceFit",
    )),
)  # fmt: skip

text = REGISTRY.texts.text
"""Texts of the reasons of all plugins and of the framework."""
