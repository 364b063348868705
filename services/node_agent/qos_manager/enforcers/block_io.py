"""Block I/O limits on this node's devices: finds them in sysfs, writes the lines that differ, takes them away at the end. Source: spec/node-agent.md 3.7."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from services.node_agent.cgroup.container_paths import PodCgroups
from services.node_agent.cgroup.executor import CgroupValue, Executor
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
"""The cgroup of everything."""


def storage(sys: Path) -> Storage:
    """Disks, partitions, and volume groups that lie on one device, by what the kernel shows of them.

    Names of logical volumes are those of the device mapper, in which `-` parts group and volume and `--` stands for
    `-`.
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
    """Mount point -> device, of the node's own name space; the last of those that lie over each other."""
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
    r"""A name as it is: the kernel writes blanks and the like as `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []


class BlockIoEnforcer:
    """Holds best effort, single pods and the node to what is asked for. Only cgroup v1 has these files."""

    def __init__(self, executor: Executor, sys: Path, proc: Path, kubelet: Path) -> None:
        self._executor = executor
        self._sys, self._proc, self._kubelet = sys, proc, kubelet
        self._ours: dict[str, set[str]] = {}
        """Folder -> devices that have a line of ours."""
        self._logged: set[str] = set()

    def round(self, qos: ResourceQos, best_effort: str, pods: Iterable[PodCgroups], claims: Mapping[str, str]) -> None:
        """Makes all targets hold what is asked for.

        Args:
            claims: `namespace/name` of a claim -> its PersistentVolume.
        """
        if not self._executor.supports(WEIGHT) and not self._executor.supports(next(iter(THROTTLES))):
            return
        found = storage(self._sys)._replace(mounts=mounts(self._proc), kubelet=str(self._kubelet))
        current = self._current_lines
        for folder, qos_class in ((best_effort, qos.be_class), (ROOT, qos.cgroup_root)):
            if _is_on(qos_class) or folder in self._ours:  # what nobody ever asked for is another's
                self._try(folder, lambda f=folder, s=qos_class: block_io.of_class(s, found, current(f), root=f == ROOT))  # type: ignore[misc]
        for each in pods:
            if BLOCK_IO in (each.pod.metadata.annotations or {}):
                inline = _names(self._kubelet / "pods" / each.pod.metadata.uid / CSI)
                volumes = block_io.volumes_of(each.pod, claims, inline)
                folder, pod = each.folder, each.pod
                self._try(folder, lambda p=pod, f=folder, v=volumes: block_io.of_pod(p, found, v, current(f)))  # type: ignore[misc]

    def release(self) -> None:
        """Takes the lines of ours away."""
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
