"""All plugins by name.

Source: spec/descheduler.md 1.2, 1.8, 1.9.
"""

from collections.abc import Mapping
from typing import Any

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


def as_given(args: Mapping[str, Any], _: str) -> Mapping[str, Any]:
    """Returns arguments as they are."""
    return args


REGISTRY: Registry = {
    "LowNodeLoad": PluginKind((BALANCE,), low_node_load_args, low_node_load),
    "CustomPriority": PluginKind((BALANCE,)),
    "FragmentationAware": PluginKind((BALANCE,)),
    "ScaleDownBinPack": PluginKind((BALANCE,)),
    MIGRATION_CONTROLLER: PluginKind((EVICT, FILTER), as_given),
    "DefaultEvictor": PluginKind((EVICT, FILTER)),
    "HighNodeUtilization": PluginKind((BALANCE,)),
    "LowNodeUtilization": PluginKind((BALANCE,)),
    "PodLifeTime": PluginKind((DESCHEDULE,)),
    "RemoveDuplicates": PluginKind((BALANCE,)),
    "RemoveFailedPods": PluginKind((DESCHEDULE,)),
    "RemovePodsHavingTooManyRestarts": PluginKind((DESCHEDULE,)),
    "RemovePodsViolatingInterPodAntiAffinity": PluginKind((DESCHEDULE,)),
    "RemovePodsViolatingNodeAffinity": PluginKind((DESCHEDULE,)),
    "RemovePodsViolatingNodeTaints": PluginKind((DESCHEDULE,)),
    "RemovePodsViolatingTopologySpreadConstraint": PluginKind((BALANCE,)),
}
