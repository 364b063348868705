"""Cgroup paths of host applications: processes outside of pods that the NodeSLO names.

Source: spec/node-agent.md 2.1.
"""

from collections.abc import Sequence

from shared.kube.slo_config import HostApplication

LATENCY_SENSITIVE, BEST_EFFORT = "host-latency-sensitive", "host-best-effort"
_OF_QOS = {"LSE": LATENCY_SENSITIVE, "LSR": LATENCY_SENSITIVE, "LS": LATENCY_SENSITIVE, "BE": BEST_EFFORT}
_BASES = ("Kubepods", "KubepodsBurstable", "KubepodsBesteffort")


def cgroup_of(app: HostApplication, kube: Sequence[str] | None) -> str | None:
    """Returns the cgroup, relative to a controller's mount; None when the entry names no valid one.

    Args:
        kube: the cgroups that hold Guaranteed, Burstable and BestEffort pods; None while there are none.
    """
    path = app.cgroup_path
    if path is None:
        parts = [_OF_QOS.get(app.qos, ""), app.name]
    else:
        base = ""
        if path.base in _BASES:
            if kube is None:
                return None
            base = kube[_BASES.index(path.base)]
        parts = [base, path.parent_dir, path.relative_path]
    steps = [step for part in parts for step in part.split("/") if step not in {"", "."}]
    # A path with `..` could name a cgroup outside of its base, and an empty one the root.
    return "/".join(steps) if steps and ".." not in steps else None
