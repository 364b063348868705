"""The cgroup files that the agent writes: path in both versions, valid values, and the kernels that have them.

A knob is named by its v1 file name in both versions. Source: spec/node-agent.md 2.2.
"""

import re
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from services.node_agent.cgroup.cpu_conversions import UNLIMITED
from shared.domain.cpu_set import BadCpuList, parse_cpus

MAX = "max"


class Kind(Enum):
    """The way in which a value is compared, written and merged in an update over several levels."""

    PLAIN = 1
    UNLIMITED = 2
    """-1 is `max` in v2."""
    SHARES = 3
    """A weight in v2."""
    QUOTA = 4
    """UNLIMITED and LARGER; in v2 the first field of cpu.max."""
    LARGER = 5
    """A parent gets the larger value first."""
    CPUS = 6
    """A parent gets the union first; compared as a set."""
    DEVICE = 7
    """One line a device; `MAJ:MIN 0` removes it."""


class Support(Enum):
    """The way in which the executor finds out whether the kernel has a file."""

    ALWAYS = 1
    KUBE = 2
    """It lies in the cgroup of all pods; looked up once."""
    TARGET = 3
    """It lies at the target; looked up each time."""
    ROOT = 4
    """It lies in the root cgroup; looked up once."""
    NEVER = 5


class Knob(NamedTuple):
    """One file.

    Attributes:
        name: its name in v1.
        subsystem: the v1 controller.
        file: its name in v2; empty when v2 has none.
        accepts: reports whether a v1 value is valid.
        v1, v2: the kernels that have it.
    """

    name: str
    subsystem: str
    file: str
    accepts: Callable[[str], bool]
    v1: Support
    v2: Support
    kind: Kind = Kind.PLAIN


def _within(least: int, most: int) -> Callable[[str], bool]:
    def accepts(value: str) -> bool:
        if value == MAX:
            return most >= UNLIMITED
        return re.fullmatch(r"-?\d{1,19}", value) is not None and least <= int(value) <= most

    return accepts


def _cpus(value: str) -> bool:
    try:
        return bool(parse_cpus(value))
    except BadCpuList:
        return False


def _device_line(least: int, most: int) -> Callable[[str], bool]:
    number = _within(least, most)

    def accepts(value: str) -> bool:
        device, _, amount = value.partition(" ")
        return re.fullmatch(r"\d+:\d+", device) is not None and number(amount)

    return accepts


_LEAST_OF = {"enable": 0, "rpct": 0, "wpct": 0, "rlat": 1, "wlat": 1}


def _parameters(value: str) -> bool:
    """`MAJ:MIN name=value ...`; numbers are at least 0, latencies and rates at least 1."""
    device, *words = value.split(" ")
    if re.fullmatch(r"\d+:\d+", device) is None or not words:
        return False
    for word in words:
        name, _, amount = word.partition("=")
        if name == "ctrl":
            if amount not in {"auto", "user"}:
                return False
        elif not amount.isdigit() or int(amount) < _LEAST_OF.get(name, 1):
            return False
    return True


def _classid(value: str) -> bool:
    if value.startswith("0x"):
        return re.fullmatch(r"0x\d{1,8}", value) is not None
    return re.fullmatch(r"\d{1,10}", value) is not None and int(value) < 2**31


_ANY = _within(-1, UNLIMITED)
_SWITCH = _within(0, 1)
_BYTES = _within(0, UNLIMITED)
_A, _K, _F, _R, _N = Support.ALWAYS, Support.KUBE, Support.TARGET, Support.ROOT, Support.NEVER

_TABLE = (
    Knob("cpu.shares", "cpu", "cpu.weight", _within(2, 262_144), _A, _A, Kind.SHARES),
    Knob("cpu.cfs_quota_us", "cpu", "cpu.max", _ANY, _A, _A, Kind.QUOTA),
    Knob("cpu.cfs_burst_us", "cpu", "cpu.max.burst", _within(0, 100_000_000), _F, _K),
    Knob("cpu.bvt_warp_ns", "cpu", "cpu.bvt_warp_ns", _within(-1, 2), _F, _F),
    Knob("cpu.idle", "cpu", "cpu.idle", _SWITCH, _K, _K),
    Knob("cgroup.procs", "cpu", "cgroup.procs", _within(0, UNLIMITED), _A, _A),
    Knob("cpuset.cpus", "cpuset", "cpuset.cpus", _cpus, _A, _A, Kind.CPUS),
    Knob("memory.limit_in_bytes", "memory", "memory.max", _ANY, _A, _A, Kind.UNLIMITED),
    Knob("memory.min", "memory", "memory.min", _BYTES, _K, _A, Kind.LARGER),
    Knob("memory.low", "memory", "memory.low", _BYTES, _K, _A, Kind.LARGER),
    Knob("memory.high", "memory", "memory.high", _BYTES, _K, _A, Kind.LARGER),
    Knob("memory.wmark_ratio", "memory", "memory.wmark_ratio", _within(0, 100), _K, _F),
    Knob("memory.wmark_scale_factor", "memory", "memory.wmark_scale_factor", _within(1, 1000), _K, _F),
    Knob("memory.wmark_min_adj", "memory", "memory.wmark_min_adj", _within(-25, 50), _K, _F),
    Knob("memory.priority", "memory", "memory.priority", _within(0, 12), _K, _F),
    Knob("memory.use_priority_oom", "memory", "memory.use_priority_oom", _SWITCH, _K, _F),
    Knob("memory.oom.group", "memory", "memory.oom.group", _SWITCH, _K, _F),
    Knob("memory.pagecache_limit.enable", "memory", "memory.pagecache_limit.enable", _SWITCH, _N, _F),
    Knob("memory.pagecache_limit.size", "memory", "memory.pagecache_limit.size", _BYTES, _N, _F),
    Knob("memory.pagecache_limit.sync", "memory", "memory.pagecache_limit.sync", _SWITCH, _N, _F),
    *(
        Knob(f"blkio.throttle.{way}_{unit}_device", "blkio", "", _device_line(0, UNLIMITED), _K, _N, Kind.DEVICE)
        for way in ("read", "write")
        for unit in ("iops", "bps")
    ),
    Knob("blkio.cost.weight", "blkio", "", _device_line(1, 100), _K, _N, Kind.DEVICE),
    Knob("blkio.cost.qos", "blkio", "", _parameters, _R, _N, Kind.DEVICE),
    Knob("blkio.cost.model", "blkio", "", _parameters, _R, _N, Kind.DEVICE),
    Knob("net_cls.classid", "net_cls", "net_cls.classid", _classid, _K, _K),
)

KNOBS = {knob.name: knob for knob in _TABLE}
"""Every knob by its v1 name."""

SYSTEM_FILES: dict[str, Callable[[str], bool]] = {
    "proc/sys/vm/min_free_kbytes": _within(10_240, 10_485_760),
    "proc/sys/vm/watermark_scale_factor": _within(10, 400),
    "sys/kernel/mm/memcg_reaper/reap_background": _SWITCH,
    "sys/kernel/mm/pagecache_limit/enabled": _SWITCH,
    "sys/kernel/mm/kidled/scan_period_in_seconds": _within(0, UNLIMITED),
    "sys/kernel/mm/kidled/use_hierarchy": _SWITCH,
    "proc/sys/kernel/sched_group_identity_enabled": _SWITCH,
    "proc/sys/kernel/sched_core": _SWITCH,
    "proc/sys/kernel/sched_idle_saver_wmark": _within(0, UNLIMITED),
}
"""Files of the node as a whole that hold one number, below the root of procfs (`proc/`) or sysfs (`sys/`)."""


def limit(text: str) -> int:
    """Returns a limit as a number for comparisons: `max` and -1 are UNLIMITED.

    Raises:
        ValueError: it is not a limit.
    """
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    if first in {MAX, "-1"}:
        return UNLIMITED
    return int(first)
