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
from services.descheduler.plugins.fragmentation_aware import fragmentation_aware
from services.descheduler.plugins.fragmentation_aware import read_args as fragmentation_aware_args
from services.descheduler.plugins.remove_duplicates import read_args as remove_duplicates_args
from services.descheduler.plugins.remove_duplicates import remove_duplicates
from services.descheduler.plugins.scale_down_bin_pack import read_args as scale_down_bin_pack_args
from services.descheduler.plugins.scale_down_bin_pack import scale_down_bin_pack
from services.descheduler.plugins.violated_node_affinity import read_args as violated_node_affinity_args
from services.descheduler.plugins.violated_node_affinity import violated_node_affinity
from services.descheduler.plugins.violated_node_taints import read_args as violated_node_taints_args
from services.descheduler.plugins.violated_node_taints import violated_node_taints

REGISTRY: Registry = {
    "LowNodeLoad": PluginKind((BALANCE,), low_node_load_args, low_node_load),
    "CustomPriority": PluginKind((BALANCE,)),
    "FragmentationAware": PluginKind((BALANCE,), fragmentation_aware_args, fragmentation_aware),
    "ScaleDownBinPack": PluginKind((BALANCE,), scale_down_bin_pack_args, scale_down_bin_pack),
    MIGRATION_CONTROLLER: PluginKind((EVICT, FILTER), migration_controller_args, new_filter=migration_filter),
    "DefaultEvictor": PluginKind((EVICT, FILTER)),
    "HighNodeUtilization": PluginKind((BALANCE,)),
    "LowNodeUtilization": PluginKind((BALANCE,)),
    "PodLifeTime": PluginKind((DESCHEDULE,)),
    "RemoveDuplicates": PluginKind((BALANCE,), remove_duplicates_args, remove_duplicates),
    "RemoveFailedPods": PluginKind((DESCHEDULE,)),
    "RemovePodsHavingTooManyRestarts": PluginKind((DESCHEDULE,)),
    "RemovePodsViolatingInterPodAntiAffinity": PluginKind((DESCHEDULE,)),
    "RemovePodsViolatingNodeAffinity": PluginKind((DESCHEDULE,), violated_node_affinity_args, violated_node_affinity),
    "RemovePodsViolatingNodeTaints": PluginKind((DESCHEDULE,), violated_node_taints_args, violated_node_taints),
    "RemovePodsViolatingTopologySpreadConstraint": PluginKind((BALANCE,)),
}
