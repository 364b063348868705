"""Writes the values of the runtime hooks to cgroup files."""

import re
from collections.abc import Iterator

from services.node_agent.cgroup.executor import CgroupValue, Executor, WriteResult
from services.node_agent.cgroup.kubepods_layout import KubepodsLayout
from services.node_agent.cgroup.pod_cgroup_paths import containers
from services.node_agent.runtime_hooks.hook_values import HookValues

_UID = re.compile(r"[0-9A-Za-z-]{1,63}").fullmatch
KUBE_QOS = ("Guaranteed", "Burstable", "BestEffort")
"""Kubernetes classes in the order of `KubepodsLayout.folders`."""


def values_of_cgroup(folder: str, values: HookValues) -> Iterator[CgroupValue]:
    """Yields the files of a cgroup; the score of its processes is none of them."""
    for knob, value in (
        ("cpu.shares", values.shares),
        ("cpu.cfs_quota_us", values.quota_us),
        ("memory.limit_in_bytes", values.memory_limit),
        ("cpuset.cpus", values.cpus),
        ("cpu.bvt_warp_ns", values.bvt),
    ):
        if value is not None:
            yield CgroupValue(knob, folder, str(value))


class PodCgroupWriter:
    """Writes the cgroups of pods that have just been created, by the names that the kubelet gives them."""

    def __init__(self, executor: Executor, layout: KubepodsLayout, parent: str) -> None:
        self._executor, self._layout, self._parent = executor, layout, parent.strip("/")

    @property
    def identities_in_unified(self) -> bool:
        """Reports whether a runtime can set `cpu.bvt_warp_ns`: in v2, on a kernel that has it."""
        return self._executor.tree.version == 2 and self._executor.supports("cpu.bvt_warp_ns", self._executor.tree.kube)

    @property
    def identities_in_files(self) -> bool:
        """Reports whether `cpu.bvt_warp_ns` can only be written: in v1, on a kernel that has it."""
        return self._executor.tree.version == 1 and self._executor.supports("cpu.bvt_warp_ns", self._executor.tree.kube)

    def write_identity(self, uid: str, kube_qos: str, container: str, bvt: int) -> None:
        """Writes the identity of a container; one without a cgroup yet is left to the reconciler."""
        tree = self._executor.tree
        base = tree.root / "cpu" if tree.version == 1 else tree.root
        if folder := containers(base, self.folder(uid, kube_qos)).get(container):
            self._executor.update(CgroupValue("cpu.bvt_warp_ns", folder, str(bvt)))

    def folder(self, uid: str, kube_qos: str) -> str:
        """Returns a pod's cgroup, relative to a controller's root; empty for a uid that cannot be part of a name."""
        if _UID(uid) is None or kube_qos not in KUBE_QOS:
            return ""
        top, begin, end = self._layout.folders[KUBE_QOS.index(kube_qos)]
        name = f"{begin}{uid.replace('-', '_') if end else uid}{end}"
        return "/".join(filter(None, (self._parent, top, name)))

    def write(self, uid: str, kube_qos: str, values: HookValues) -> bool:
        """Writes the values that differ; reports whether all are in place, or nothing that this kernel has.

        Args:
            uid: of the pod; one that cannot be part of a name is written nowhere.
        """
        folder = self.folder(uid, kube_qos)
        if not folder:
            return False
        results = [self._executor.update(each) for each in values_of_cgroup(folder, values)]
        return not {WriteResult.GONE, WriteResult.REFUSED} & set(results)
