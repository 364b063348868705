"""Enforces block I/O limits: finds devices in sysfs, writes lines that differ, and removes them at the end.

Source: spec/node-agent.md 3.7.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from services.node_agent.cgroup.executor import CgroupValue, Executor
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.qos_manager.strategies import block_io
from services.node_agent.qos_manager.strategies.block_io import (
    MODEL,
    QOS,
    THROTTLES,
    WEIGHT,
    Storage,
    UnknownDevice,
    Volumes,
    Writes,
)
from shared.agents.node_pods import BLOCK_IO
from shared.kube.slo_config import QosClass, ResourceQos

log = logging.getLogger(__name__)

CSI = "volumes/kubernetes.io~csi"
"""Where the kubelet mounts the CSI volumes of a pod, below the pod's folder."""
ROOT = ""
"""The root cgroup."""


def storage(sys: Path) -> Storage:
    """Reads disks, partitions, and volume groups on a single device from sysfs.

    Logical volumes are named as in the device mapper: `-` separates group and volume, and `--` stands for `-`.
    """
    disks: dict[str, str] = {}
    partitions: dict[str, str] = {}
    below: dict[str, set[str]] = {}
    logical: dict[str, str] = {}
    try:
        entries = sorted((sys / "class/block").iterdir())
    except OSError:
        entries = []
    for entry in entries:
        try:
            number = (entry / "dev").read_text().strip()
            if (entry / "partition").exists():
                partitions[f"/dev/{entry.name}"] = f"/dev/{entry.resolve().parent.name}"
            elif (entry / "dm/name").exists():
                name = (entry / "dm/name").read_text().strip()
                group = name.replace("--", "\0").partition("-")[0].replace("\0", "-")
                logical[f"/dev/mapper/{name}"] = group
                below.setdefault(group, set()).update(f"/dev/{one.name}" for one in (entry / "slaves").iterdir())
            else:
                disks[f"/dev/{entry.name}"] = number
        except OSError:
            continue
    groups = {group: partitions.get(only, only) for group, found in below.items() if len(found) == 1 for only in found}
    return Storage(disks, partitions, groups, logical, {})


def mounts(proc: Path) -> dict[str, str]:
    """Returns mount point -> device, of the host's mount namespace; of stacked mounts the last."""
    try:
        lines = (proc / "1/mountinfo").read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        mounted, _, source = line.partition(" - ")
        fields, of = mounted.split(" "), source.split(" ")
        if len(fields) > 4 and len(of) > 1 and of[1].startswith("/dev/"):
            found[_plain(fields[4])] = _plain(of[1])
    return found


def _plain(text: str) -> str:
    r"""Returns a name without the kernel's escapes, such as `\040` for a blank."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []


class BlockIoEnforcer:
    """Enforces the limits of best effort, single pods and the node. Only cgroup v1 has these files."""

    def __init__(self, executor: Executor, sys: Path, proc: Path, kubelet: Path) -> None:
        self._executor = executor
        self._sys, self._proc, self._kubelet = sys, proc, kubelet
        self._ours: dict[str, set[str]] = {}
        """Folder -> devices that have a line of ours."""
        self._logged: set[str] = set()

    def reconcile(
        self, qos: ResourceQos, best_effort: str, pods: Iterable[PodCgroups], claims: Mapping[str, str]
    ) -> None:
        """Brings the files of all targets to their limits.

        Args:
            claims: `namespace/name` of a claim -> its PersistentVolume.
        """
        if not self._executor.supports(WEIGHT) and not self._executor.supports(next(iter(THROTTLES))):
            return
        found = storage(self._sys)._replace(mounts=mounts(self._proc), kubelet=str(self._kubelet))
        current = self._current_lines
        for folder, qos_class in ((best_effort, qos.be_class), (ROOT, qos.cgroup_root)):
            if _is_on(qos_class) or folder in self._ours:  # limits that the NodeSLO never set belong to somebody else
                self._try(folder, lambda f=folder, s=qos_class: block_io.of_class(s, found, current(f), root=f == ROOT))  # type: ignore[misc]
        for each in pods:
            if BLOCK_IO in (each.pod.metadata.annotations or {}):
                inline = _names(self._kubelet / "pods" / each.pod.metadata.uid / CSI)
                volumes = block_io.volumes_of(each.pod, claims, inline)
                folder, pod = each.folder, each.pod
                self._try(folder, lambda p=pod, f=folder, v=volumes: block_io.of_pod(p, found, v, current(f)))  # type: ignore[misc]

    def release(self) -> None:
        """Removes our lines."""
        for folder, devices in self._ours.items():
            files = (QOS,) if folder == ROOT else (*THROTTLES, WEIGHT)
            lines = {file: [f"{device} 1" for device in devices] for file in files}
            self._write(
                folder, block_io.desired_lines((), Storage({}, {}, {}, {}, {}), Volumes(), lines, root=folder == ROOT)
            )
        self._ours.clear()

    def _try(self, folder: str, work_out: Callable[[], Writes]) -> None:
        try:
            self._write(folder, work_out())
        except UnknownDevice as error:
            if str(error) not in self._logged:
                self._logged.add(str(error))
                log.warning(str(error), extra={"cgroup": folder or "/"})

    def _write(self, folder: str, writes: Writes) -> None:
        for file, lines in writes.items():
            for line in lines:
                self._executor.update(CgroupValue(file, folder, line), cached=False)
                self._ours.setdefault(folder, set()).add(line.split(" ", 1)[0])

    def _current_lines(self, folder: str) -> dict[str, list[str]]:
        files = (QOS, MODEL) if folder == ROOT else (*THROTTLES, WEIGHT)
        return {file: (self._executor.read(file, folder) or "").splitlines() for file in files}


def _is_on(qos_class: QosClass | None) -> bool:
    return qos_class is not None and qos_class.blkio_qos is not None and qos_class.blkio_qos.enable is True
