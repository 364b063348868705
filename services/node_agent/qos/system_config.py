"""Settings of the kernel as a whole, from a NodeSLO's `systemStrategy`. Source: spec/node-agent.md 3.8."""

from collections.abc import Mapping
from typing import Any

from services.node_agent.cgroup.knobs import SYSTEM_FILES

_SWITCHES = {
    "memcgReapBackGround": "sys/kernel/mm/memcg_reaper/reap_background",
    "schedGroupIdentityEnabled": "proc/sys/kernel/sched_group_identity_enabled",
    "schedIdleSaverWmark": "proc/sys/kernel/sched_idle_saver_wmark",
    "pageCacheLimitEnabled": "sys/kernel/mm/pagecache_limit/enabled",
    "watermarkScaleFactor": "proc/sys/vm/watermark_scale_factor",
}


def wanted(strategy: Mapping[str, Any], memory_capacity: int) -> dict[str, str]:
    """File below procfs or sysfs -> what it is to hold. What lies outside of a file's range is left out.

    Args:
        memory_capacity: the node's, in bytes.
    """
    found: dict[str, str] = {}
    factor = strategy.get("minFreeKbytesFactor")
    if isinstance(factor, int) and memory_capacity > 0:
        found["proc/sys/vm/min_free_kbytes"] = str(memory_capacity // 1024 * factor // 10_000)
    for name, file in _SWITCHES.items():
        value = strategy.get(name)
        if isinstance(value, int):
            found[file] = str(int(value))
    return {file: value for file, value in found.items() if SYSTEM_FILES[file](value)}
