"""Groups of resctrl: of the classes LSR, LS and BE, and of single pods with the annotation for a share of their own.

Groups of classes stay at the end, with the schemata of the root and their processes; a pod's group is removed with its
pod. The runtime's plugin makes a pod's group before its containers, the reconciler otherwise. Source:
spec/node-agent.md 3.6, 4.9.
"""

import ctypes
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.usage_sample_types import SECOND_NS
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.qos_manager.strategies import resctrl
from services.node_agent.runtime_hooks.resctrl_class import annotation
from shared.domain.slo_defaults import NodeSloSpec
from shared.errors import KoordError
from shared.kube.slo_config import QosClass

log = logging.getLogger(__name__)

_UID = re.compile(r"[0-9A-Za-z-]{1,63}").fullmatch

OF_POD = "koordlet-"
"""Prefix of a pod's group; its uid follows."""
YOUNG_NS = 10 * SECOND_NS
"""Nanoseconds before a group without a known pod is removed: the pod may be new."""


class NoGroup(KoordError):
    """A pod cannot have a resctrl group of its own."""


class ResctrlGroups:
    """Keeps the groups below sysfs' fs/resctrl."""

    def __init__(self, sys: Path, processes: Processes, clock_ns: Callable[[], int]) -> None:
        self._folder = sys / "fs/resctrl"
        self._processes, self._clock_ns = processes, clock_ns
        self._logged: set[str] = set()
        self._tried_to_mount = False
        self._orphans: dict[str, int] = {}
        self._made: dict[str, str] = {}
        """Uid of a pod -> the annotation by which its group was made last."""

    def make(self, uid: str, text: str) -> str:
        """Makes a pod's group with its schemata, unless that has been done; returns its name.

        Args:
            text: the pod's annotation.

        Raises:
            BadShare: the annotation is invalid.
            NoGroup: this node has no resctrl, or the kernel makes no further group.
        """
        if _UID(uid) is None:
            raise NoGroup(f"the uid {uid!r} cannot be part of a group's name")
        name = f"{OF_POD}{uid}"
        if self._made.get(uid) == text and (self._folder / name).is_dir():
            return name
        if not self._mounted(mount=True):
            raise NoGroup(f"this node has no resctrl at {self._folder}")
        try:
            mask, caches = self._mask(), self._caches()
            shares = resctrl.of_pod(text, mask, caches, self._vendor)
            new = not (self._folder / name).is_dir()
            try:
                self._group(name, shares, caches)
            except OSError:
                if new:  # with the schemata of the root it would be no share of the pod's own
                    with suppress(OSError):
                        (self._folder / name).rmdir()
                raise
        except OSError as error:
            raise NoGroup(f"its resctrl group cannot be made: {os.strerror(error.errno or 0)}") from error
        self._made[uid] = text
        return name

    def remove(self, uid: str) -> None:
        """Removes the group of a pod that is gone; one that cannot be removed now is left to the reconciler."""
        self._made.pop(uid, None)
        if _UID(uid) is not None:
            with suppress(OSError):
                (self._folder / f"{OF_POD}{uid}").rmdir()

    def reconcile(
        self,
        spec: NodeSloSpec,
        pods: Iterable[PodCgroups],
        gates: Mapping[str, bool],
        present: Collection[str] = frozenset(),
    ) -> None:
        """Brings groups to their schemata, with the processes that belong to them.

        Args:
            present: uids of all pods with a cgroup: the groups of those that were not received yet are kept.
        """
        pod_cgroups = list(pods)
        qos = spec.resource_qos_strategy
        classes: dict[str, QosClass | None] = (
            {"LSR": qos.lsr_class, "LS": qos.ls_class, "BE": qos.be_class} if qos and gates["RdtResctrl"] else {}
        )
        enabled = {name: qos_class for name, qos_class in classes.items() if _is_on(qos_class)}
        own = {
            each.pod.metadata.uid: each
            for each in pod_cgroups
            if gates["Resctrl"] and annotation(each.pod.metadata.annotations)
        }
        if not self._mounted(mount=bool(enabled or own)):
            return
        try:
            mask, caches = self._mask(), self._caches()
            if enabled:
                for name, qos_class in classes.items():
                    self._group(name, _of_class(qos_class, mask, self._vendor), caches)
                for each in pod_cgroups:
                    group = resctrl.group_of(each.pod)
                    if group in enabled and not annotation(each.pod.metadata.annotations):
                        self._join(group, each)
            for uid, each in own.items():
                self._pod(uid, each)
            if gates["Resctrl"]:
                received = {each.pod.metadata.uid for each in pod_cgroups}
                self._remove_orphans({*own, *(uid for uid in present if uid not in received)})
        except OSError as error:
            self._warn_once(f"resctrl groups cannot be applied: {error}")

    def _pod(self, uid: str, each: PodCgroups) -> None:
        self._made.pop(uid, None)  # another program may have changed the schemata
        try:
            self._join(self.make(uid, annotation(each.pod.metadata.annotations)), each)
        except (resctrl.BadShare, NoGroup) as error:
            self._warn_once(f"pod {each.pod.metadata.key}: {error}")

    def _remove_orphans(self, kept: Collection[str]) -> None:
        """Removes the groups of pods that are gone; the kernel moves their processes to the root.

        Groups are found by their names, so that those of an earlier run of the agent are removed, too.
        """
        now_ns = self._clock_ns()
        names = {path.name for path in self._folder.glob(f"{OF_POD}*") if path.name.removeprefix(OF_POD) not in kept}
        self._orphans = {name: self._orphans.get(name, now_ns) for name in sorted(names)}
        for name, since_ns in list(self._orphans.items()):
            if now_ns - since_ns >= YOUNG_NS:
                (self._folder / name).rmdir()
                del self._orphans[name]
                self._made.pop(name.removeprefix(OF_POD), None)

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

    def _mask(self) -> str:
        return (self._folder / "info/L3/cbm_mask").read_text().strip()

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

    @cached_property
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
