"""All plugins by name.

Source: spec/descheduler.md 1.2, 1.8, 1.9.
"""

from services.descheduler.configuration.plugin_kinds import (
    BALANCE,
    DESCHEDULE,
    EVICT,
    FILTER,
    MIGRATION_CONTROLLER,
    PluginKind,
    Registry,
)
from services.descheduler.load_aware.arguments import read_args as low_node_load_args
from services.descheduler.load_aware.plugin import low_node_load
from services.descheduler.migration.controller_args import read_args as migration_controller_args
from services.descheduler.migration.plugin_filter import migration_filter
from services.descheduler.plugins.custom_priority import custom_priority
from services.descheduler.plugins.custom_priority import read_args as custom_priority_args
from services.descheduler.plugins.default_evictor import default_evictor_filter
from services.descheduler.plugins.default_evictor import read_args as default_evictor_args
from services.descheduler.plugins.defragment import defragment
from services.descheduler.plugins.failed_pods import failed_pods
from services.descheduler.plugins.failed_pods import read_args as failed_pods_args
from services.descheduler.plugins.fragmentation_aware import fragmentation_aware
from services.descheduler.plugins.fragmentation_aware import read_args as fragmentation_aware_args
from services.descheduler.plugins.node_utilization import high_node_utilization, low_node_utilization
from services.descheduler.plugins.node_utilization_args import read_high_args, read_low_args
from services.descheduler.plugins.pod_anti_affinity import pod_anti_affinity
from services.descheduler.plugins.pod_anti_affinity import read_args as pod_anti_affinity_args
from services.descheduler.plugins.pod_life_time import pod_life_time
from services.descheduler.plugins.pod_life_time import read_args as pod_life_time_args
from services.descheduler.plugins.remove_duplicates import read_args as remove_duplicates_args
from services.descheduler.plugins.remove_duplicates import remove_duplicates
from services.descheduler.plugins.scale_down_bin_pack import read_args as scale_down_bin_pack_args
from services.descheduler.plugins.scale_down_bin_pack import scale_down_bin_pack
from services.descheduler.plugins.too_many_restarts import read_args as too_many_restarts_args
from services.descheduler.plugins.too_many_restarts import too_many_restarts
from services.descheduler.plugins.topology_spread import read_args as topology_spread_args
from services.descheduler.plugins.topology_spread import topology_spread
from services.descheduler.plugins.violated_node_affinity import read_args as violated_node_affinity_args
from services.descheduler.plugins.violated_node_affinity import violated_node_affinity
from services.descheduler.plugins.violated_node_taints import read_args as violated_node_taints_args
from services.descheduler.plugins.violated_node_taints import violated_node_taints
from services.descheduler.plugins.waiting_units import read_args as defragment_args

REGISTRY: Registry = {
    "LowNodeLoad": PluginKind((BALANCE,), low_node_load_args, low_node_load),
    "Defragment": PluginKind((BALANCE,), defragment_args, defragment),
    "CustomPriority": PluginKind((BALANCE,), custom_priority_args, custom_priority),
    "FragmentationAware": PluginKind((BALANCE,), fragmentation_aware_args, fragmentation_aware),
    "ScaleDownBinPack": PluginKind((BALANCE,), scale_down_bin_pack_args, scale_down_bin_pack),
    MIGRATION_CONTROLLER: PluginKind((EVICT, FILTER), migration_controller_args, new_filter=migration_filter),
    "DefaultEvictor": PluginKind((EVICT, FILTER), default_evictor_args, new_filter=default_evictor_filter),
    "HighNodeUtilization": PluginKind((BALANCE,), read_high_args, high_node_utilization),
    "LowNodeUtilization": PluginKind((BALANCE,), read_low_args, low_node_utilization),
    "PodLifeTime": PluginKind((DESCHEDULE,), pod_life_time_args, pod_life_time),
    "RemoveDuplicates": PluginKind((BALANCE,), remove_duplicates_args, remove_duplicates),
    "RemoveFailedPods": PluginKind((DESCHEDULE,), failed_pods_args, failed_pods),
    "RemovePodsHavingTooManyRestarts": PluginKind((DESCHEDULE,), too_many_restarts_args, too_many_restarts),
    "RemovePodsViolatingInterPodAntiAffinity": PluginKind((DESCHEDULE,), pod_anti_affinity_args, pod_anti_affinity),
    "RemovePodsViolatingNodeAffinity": PluginKind((DESCHEDULE,), violated_node_affinity_args, violated_node_affinity),
    "RemovePodsViolatingNodeTaints": PluginKind((DESCHEDULE,), violated_node_taints_args, violated_node_taints),
    "RemovePodsViolatingTopologySpreadConstraint": PluginKind((BALANCE,), topology_spread_args, topology_spread),
}
