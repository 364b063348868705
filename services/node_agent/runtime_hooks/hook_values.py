"""Values of a cgroup that the runtime hooks set. They reach it through the container runtime, or through its files."""

from typing import NamedTuple


class HookValues(NamedTuple):
    """Values of a pod's or a container's cgroup, in terms of v1. None: the hooks leave it.

    Attributes:
        quota_us: microseconds of cpu in each period of 100 ms; -1: no limit.
        memory_limit: bytes; -1: no limit.
        cpus: in kernel syntax, never empty.
        bvt: `cpu.bvt_warp_ns`.
        oom_score: `oom_score_adj` of the processes; a container's alone.
    """

    shares: int | None = None
    quota_us: int | None = None
    memory_limit: int | None = None
    cpus: str | None = None
    bvt: int | None = None
    oom_score: int | None = None

    def overlaid_by(self, later: "HookValues") -> "HookValues":
        """Returns both; of two values for one file the later hook's is in force."""
        return self._replace(**{name: value for name, value in later._asdict().items() if value is not None})


NO_VALUES = HookValues()
