"""System config: node-wide kernel settings from a NodeSLO's `systemStrategy`. Source: spec/node-agent.md 3.8."""

from services.node_agent.cgroup.cgroup_knobs import SYSTEM_FILES
from shared.kube.slo_config import SystemStrategy

SCHED_FEATURES = "sys/kernel/debug/sched_features"
"""Scheduler features by name, those that are off with the prefix NO_. Newer kernels have the file at
`sched/features`."""


def desired_settings(strategy: SystemStrategy, memory_capacity: int) -> dict[str, str]:
    """Returns file below procfs or sysfs -> desired value. Values outside of a file's range are left out.

    Args:
        memory_capacity: the node's, in bytes.
    """
    factor = strategy.min_free_kbytes_factor
    settings = {
        "proc/sys/vm/min_free_kbytes": memory_capacity // 1024 * factor // 10_000
        if factor is not None and memory_capacity > 0
        else None,
        "proc/sys/vm/watermark_scale_factor": strategy.watermark_scale_factor,
        "sys/kernel/mm/memcg_reaper/reap_background": strategy.memcg_reap_back_ground,
        "proc/sys/kernel/sched_group_identity_enabled": strategy.sched_group_identity_enabled,
        "proc/sys/kernel/sched_idle_saver_wmark": strategy.sched_idle_saver_wmark,
        "sys/kernel/mm/pagecache_limit/enabled": strategy.page_cache_limit_enabled,
    }
    texts = {file: str(value) for file, value in settings.items() if value is not None}
    return {file: text for file, text in texts.items() if SYSTEM_FILES[file](text)}
