"""Groups of resctrl: of the classes LSR, LS and BE, and of single pods with the annotation for a share of their own.

Groups of classes stay at the end, with the schemata of the root and their processes; a pod's group is removed with its
pod. Source: spec/node-agent.md 3.6, 4.9.
"""

import ctypes
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.usage_sample_types import SECOND_NS
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.qos_manager.strategies import resctrl
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.slo_config import QosClass

log = logging.getLogger(__name__)

OF_POD = "koordlet-"
"""Prefix of a pod's group; its uid follows."""
YOUNG_NS = 10 * SECOND_NS
"""Nanoseconds before a group without a known pod is removed: the pod may be new."""


class ResctrlGroups:
    """Keeps the groups below sysfs' fs/resctrl."""

    def __init__(self, sys: Path, processes: Processes, clock_ns: Callable[[], int]) -> None:
        self._folder = sys / "fs/resctrl"
        self._processes, self._clock_ns = processes, clock_ns
        self._logged: set[str] = set()
        self._tried_to_mount = False
        self._orphans: dict[str, int] = {}

    def reconcile(self, spec: NodeSloSpec, pods: Iterable[PodCgroups], gates: Mapping[str, bool]) -> None:
        """Brings groups to their schemata, with the processes that belong to them."""
        pod_cgroups = list(pods)
        qos = spec.resource_qos_strategy
        classes: dict[str, QosClass | None] = (
            {"LSR": qos.lsr_class, "LS": qos.ls_class, "BE": qos.be_class} if qos and gates["RdtResctrl"] else {}
        )
        enabled = {name: qos_class for name, qos_class in classes.items() if _is_on(qos_class)}
        own = {each.pod.metadata.uid: each for each in pod_cgroups if gates["Resctrl"] and _annotation(each)}
        if not self._mounted(mount=bool(enabled or own)):
            return
        try:
            mask = (self._folder / "info/L3/cbm_mask").read_text().strip()
            caches = self._caches()
            if enabled:
                for name, qos_class in classes.items():
                    self._group(name, _of_class(qos_class, mask, self._vendor()), caches)
                for each in pod_cgroups:
                    group = resctrl.group_of(each.pod)
                    if group in enabled and not _annotation(each):
                        self._join(group, each)
            for uid, each in own.items():
                self._pod(uid, each, mask, caches)
            if gates["Resctrl"]:
                self._remove_orphans(own)
        except OSError as error:
            self._warn_once(f"resctrl groups cannot be applied: {error}")

    def _pod(self, uid: str, each: PodCgroups, mask: str, caches: list[int]) -> None:
        try:
            shares = resctrl.of_pod(_annotation(each), mask, caches, self._vendor())
        except resctrl.BadShare as error:
            self._warn_once(f"pod {each.pod.metadata.key}: {error}")
            return
        name = f"{OF_POD}{uid}"
        self._group(name, shares, caches)
        self._join(name, each)

    def _remove_orphans(self, own: Mapping[str, PodCgroups]) -> None:
        """Removes the groups of pods that are gone; the kernel moves their processes to the root."""
        now_ns = self._clock_ns()
        names = {path.name for path in self._folder.glob(f"{OF_POD}*") if path.name.removeprefix(OF_POD) not in own}
        self._orphans = {name: self._orphans.get(name, now_ns) for name in sorted(names)}
        for name, since_ns in list(self._orphans.items()):
            if now_ns - since_ns >= YOUNG_NS:
                (self._folder / name).rmdir()
                del self._orphans[name]

    def _mounted(self, *, mount: bool) -> bool:
        """Reports whether the file system is mounted.

        It is mounted once, when it is needed and the processor can share its caches.
        """
        if (self._folder / "info/L3/cbm_mask").exists():
            return True
        if not mount or self._tried_to_mount or not self._folder.is_dir() or not {"cat_l3", "mba"} <= self._flags():
            return False
        self._tried_to_mount = True
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"resctrl", os.fsencode(self._folder), b"resctrl", 0, None) != 0:
            self._warn_once(f"resctrl cannot be mounted at {self._folder}: {os.strerror(ctypes.get_errno())}")
        return (self._folder / "info/L3/cbm_mask").exists()

    def _caches(self) -> list[int]:
        for line in (self._folder / "schemata").read_text().splitlines():
            kind, _, rest = line.strip().partition(":")
            if kind == "L3":
                return [int(part.partition("=")[0]) for part in rest.split(";") if part]
        return []

    def _group(self, name: str, shares: resctrl.Shares, caches: list[int]) -> None:
        """Creates a group with its schemata; resources that the processor does not share are skipped."""
        file = self._folder / name / "schemata"
        file.parent.mkdir(mode=0o755, exist_ok=True)
        current = {line.strip().rstrip(";") for line in file.read_text().splitlines()} if file.exists() else set()
        shares_bandwidth = any(line.startswith("MB:") for line in current)
        for line in (
            resctrl.schemata_lines("L3", {cache: f"{mask:x}" for cache, mask in shares.masks(caches).items()}),
            resctrl.schemata_lines("MB", {cache: str(value) for cache, value in shares.bandwidths(caches).items()})
            if shares_bandwidth
            else "",
        ):
            if line and line.strip().rstrip(";") not in current:
                file.write_text(line)

    def _join(self, group: str, each: PodCgroups) -> None:
        tasks = self._folder / group / "tasks"
        there = set(tasks.read_text().split()) if tasks.exists() else set()
        for folder in each.containers.values():
            for pid in self._processes.of(folder, threads=True):
                if str(pid) not in there:
                    try:
                        with tasks.open("a") as file:  # the kernel takes one id a write
                            file.write(str(pid))
                    except OSError:
                        continue  # it has ended

    def _vendor(self) -> str:
        return self._cpuinfo("vendor_id")

    def _flags(self) -> frozenset[str]:
        return frozenset(self._cpuinfo("flags").split())

    def _cpuinfo(self, field: str) -> str:
        try:
            lines = (self._processes.proc / "cpuinfo").read_text().splitlines()
        except OSError:
            return ""
        for line in lines:
            name, _, found = line.partition(":")
            if name.strip() == field:
                return found.strip()
        return ""

    def _warn_once(self, text: str) -> None:
        """Logs a warning unless its text was logged before."""
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text)


def _is_on(qos_class: QosClass | None) -> bool:
    return qos_class is not None and qos_class.resctrl_qos is not None and qos_class.resctrl_qos.enable is True


def _of_class(qos_class: QosClass | None, mask: str, vendor: str) -> resctrl.Shares:
    config = qos_class.resctrl_qos if qos_class else None
    if config is None:
        return resctrl.Shares()
    end = 100 if config.cat_range_end_percent is None else config.cat_range_end_percent
    percent = 100 if config.mba_percent is None else config.mba_percent
    return resctrl.Shares(
        resctrl.cache_mask(mask, config.cat_range_start_percent or 0, end), resctrl.bandwidth(percent, vendor)
    )


def _annotation(each: PodCgroups) -> str:
    return (each.pod.metadata.annotations or {}).get(resctrl.ANNOTATION, "")
