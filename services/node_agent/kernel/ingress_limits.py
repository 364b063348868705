"""Limits what single pods receive: a token bucket on the node's end of the pair of interfaces that leads into a pod.

Traffic leaves the node there, so it can be shaped, which the kernel does not do for what a network card receives. Pods
in the node's network have no such pair. It needs the programs `tc`, `ip` and `nsenter`, and sch_tbf in the kernel.
Source: spec/api.md 2.1 (`koordinator.sh/networkQOS`, ingressLimit); upstream enforces it through Terway alone.
"""

import logging
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.qos_manager.strategies import network_qos

log = logging.getLogger(__name__)

HANDLE = "7c0d:"
"""Of our queueing disciplines; one with another handle belongs to other software, such as a CNI plugin."""
DEFAULTS = frozenset({"noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "noop"})
"""Disciplines that the kernel sets by itself."""
BUCKET_S = 0.02
LEAST_BUCKET_BYTES = 16_000
RUNS_FOR_S = 5.0

_LINK = re.compile(r"^(\d+): ([^:@\s]+)(?:@if(\d+))?", re.MULTILINE)


class IngressLimits:
    """The limits that are in place."""

    def __init__(self, processes: Processes, node: tuple[str, ...] = ()) -> None:
        """Makes an empty set of limits.

        Args:
            node: words before each command that concerns the node's own interfaces.
        """
        self._processes, self._node = processes, node
        self._limits: dict[str, tuple[str, int]] = {}
        """Uid of a pod -> interface on the node, bits a second."""
        self._logged: set[str] = set()

    def reconcile(self, pods: Iterable[PodCgroups]) -> None:
        """Brings the limits to the pods' annotations; a new pod is limited once it has a process."""
        desired = {each.pod.metadata.uid: (each, limit) for each, limit in _limited(pods)}
        for uid in [uid for uid in self._limits if uid not in desired]:
            self._remove(self._limits.pop(uid)[0])
        names: dict[int, str] | None = None
        for uid, (each, limit) in desired.items():
            before = self._limits.get(uid)
            if before is not None and not self._is_ours(before[0]):
                before = None  # a sandbox that was created anew has other interfaces
            if before is not None and before[1] == limit:
                continue
            if before is None and names is None:
                names = {number: name for number, name, _ in _links(self._run((*self._node, "ip", "-o", "link")) or "")}
            interface = before[0] if before is not None else self._interface(each, names or {})
            if interface and self._set(interface, limit):
                self._limits[uid] = (interface, limit)

    def release(self) -> None:
        """Removes all limits."""
        for interface, _ in self._limits.values():
            self._remove(interface)
        self._limits = {}

    def _interface(self, each: PodCgroups, names: dict[int, str]) -> str:
        """Returns the node's end of a pod's first pair of interfaces; empty while the pod has no process."""
        for folder in each.containers.values():
            for pid in self._processes.of(folder)[:1]:
                inside = Path(self._processes.proc) / str(pid) / "ns/net"
                shown = self._run(("nsenter", f"--net={inside}", "ip", "-o", "link")) or ""
                for _, _, peer in _links(shown):
                    if peer in names:
                        return names[peer]
        return ""

    def _set(self, interface: str, limit: int) -> bool:
        shown = self._run((*self._node, "tc", "qdisc", "show", "dev", interface, "root"))
        if shown is None:
            return False
        kind, handle = (*shown.split()[1:3], "", "")[:2]
        if kind not in DEFAULTS and handle != HANDLE:
            self._warn_once(f"{interface} has the queueing discipline {kind} {handle} of other software; it stays")
            return False
        bucket = max(int(limit / 8 * BUCKET_S), LEAST_BUCKET_BYTES)
        words = ("qdisc", "replace", "dev", interface, "root", "handle", HANDLE, "tbf")
        rate = ("rate", f"{limit}bit", "burst", str(bucket), "latency", "50ms")
        return self._run((*self._node, "tc", *words, *rate)) is not None

    def _remove(self, interface: str) -> None:
        """Removes a limit; with its pod the interface has gone, too."""
        if self._is_ours(interface):
            self._run((*self._node, "tc", "qdisc", "del", "dev", interface, "root"))

    def _is_ours(self, interface: str) -> bool:
        """Reports whether an interface is there and has our limit."""
        shown = self._run((*self._node, "tc", "qdisc", "show", "dev", interface, "root"), missing=True)
        return shown is not None and f" {HANDLE} " in shown

    def _run(self, words: tuple[str, ...], *, missing: bool = False) -> str | None:
        """Runs a command; returns its output, None where it failed.

        Args:
            missing: its failure is no trouble.
        """
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=RUNS_FOR_S, check=False)  # noqa: S603  own words, names of interfaces
        except (OSError, subprocess.TimeoutExpired) as error:
            self._warn_once(str(error))
            return None
        if done.returncode and not missing:
            self._warn_once(f"{' '.join(words[:6])}: {' '.join(done.stderr.split())}")
        return None if done.returncode else done.stdout

    def _warn_once(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            log.warning("the ingress of a pod is not limited", extra={"why": text})


def _limited(pods: Iterable[PodCgroups]) -> Iterator[tuple[PodCgroups, int]]:
    """Yields pods with a network of their own and a limit of what they receive, in bits a second."""
    for each in pods:
        limits = network_qos.limits_of(each.pod)
        if limits is not None and limits.ingress > 0 and not each.pod.spec.host_network:
            yield each, limits.ingress


def _links(shown: str) -> Iterator[tuple[int, str, int | None]]:
    """Yields (number, name, number of the other end) of interfaces."""
    for number, name, peer in _LINK.findall(shown):
        yield int(number), name, int(peer) if peer else None
