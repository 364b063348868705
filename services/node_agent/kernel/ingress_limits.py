"""Limits what single pods receive: a token bucket on the node's end of the pair of interfaces that leads into a pod.

Traffic leaves the node there, so it can be shaped, which the kernel does not do for what a network card receives. Pods
in the node's network have no such pair. It needs the programs `tc`, `ip` and `nsenter`, and sch_tbf in the kernel.
Source: spec/api.md 2.1 (`koordinator.sh/networkQOS`, ingressLimit); upstream enforces it through Terway alone.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.program_run import LoggedFailures, run_program
from services.node_agent.qos_manager.strategies import network_qos
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

HANDLE = "7c0d:"
"""Of our queueing disciplines; one with another handle belongs to other software, such as a CNI plugin."""
DEFAULTS = frozenset({"noqueue", "pfifo_fast", "fq_codel", "fq", "mq", "noop"})
"""Disciplines that the kernel sets by itself."""
BUCKET_S = 0.02
LEAST_BUCKET_BYTES = 16_000
RECHECK_NS = 60 * SECOND
"""Nanoseconds between two looks at limits whose pods have not changed: other software may have replaced them."""

_LINK = re.compile(r"^(\d+): ([^:@\s]+)(?:@if(\d+))?", re.MULTILINE)
_QDISC = re.compile(r"^qdisc (\S+) (\S+) dev (\S+) root", re.MULTILINE)


class PodLimit(NamedTuple):
    """The input of a pod's limit: bits a second, and the cgroups of its containers.

    A sandbox that is created anew has other interfaces, and other containers with it.
    """

    bits: int
    containers: frozenset[str]


class Placed(NamedTuple):
    """A limit that was dealt with.

    Attributes:
        interface: the node's end that has it; empty where it could not be set, which is tried again at the next look.
    """

    limit: PodLimit
    interface: str


class IngressLimits:
    """The limits that are in place. Programs are run for pods that are new or have changed, and at each look."""

    def __init__(self, processes: Processes, clock_ns: Callable[[], int], node: tuple[str, ...] = ()) -> None:
        """Makes an empty set of limits.

        Args:
            node: words before each command that concerns the node's own interfaces.
        """
        self._processes, self._clock_ns, self._node = processes, clock_ns, node
        self._placed: dict[str, Placed] = {}
        """By the uid of the pod."""
        self._looked_ns = clock_ns()
        self._logged = LoggedFailures()

    def reconcile(self, pods: Iterable[PodCgroups]) -> None:
        """Brings the limits to the pods' annotations; a new pod is limited once it has a process."""
        desired = {each.pod.metadata.uid: (each, limit) for each, limit in _limited(pods)}
        gone = [uid for uid in self._placed if uid not in desired]
        looks = bool(self._placed) and self._clock_ns() - self._looked_ns >= RECHECK_NS
        changed = {
            uid: pid
            for uid, (each, limit) in desired.items()
            if (looks or uid not in self._placed or self._placed[uid].limit != limit)
            and (pid := self._process(each)) is not None
        }
        if not gone and not changed:
            return
        shown = self._disciplines()
        if shown is None:
            return
        if looks:
            self._looked_ns = self._clock_ns()
        for uid in gone:
            self._remove(self._placed.pop(uid).interface, shown)
        names: dict[int, str] | None = None
        for uid, pid in changed.items():
            before, limit = self._placed.get(uid), desired[uid][1]
            if before is not None and shown.get(before.interface, ("", ""))[1] == HANDLE and before.limit == limit:
                continue
            if names is None:
                names = {number: name for number, name, _ in _links(self._run((*self._node, "ip", "-o", "link")) or "")}
            interface = self._interface(pid, names)
            done = bool(interface) and self._set(interface, limit.bits, shown.get(interface, ("", "")))
            self._placed[uid] = Placed(limit, interface if done else "")

    def release(self) -> None:
        """Removes all limits."""
        shown = self._disciplines() if self._placed else None
        for placed in self._placed.values():
            self._remove(placed.interface, shown or {})
        self._placed = {}

    def _process(self, each: PodCgroups) -> int | None:
        """Returns a process of a pod; None while it has none."""
        found = (pid for folder in each.containers.values() for pid in self._processes.of(folder)[:1])
        return next(found, None)

    def _interface(self, pid: int, names: Mapping[int, str]) -> str:
        """Returns the node's end of the first pair of interfaces in a process's network; empty without one."""
        inside = Path(self._processes.proc) / str(pid) / "ns/net"
        shown = self._run(("nsenter", f"--net={inside}", "ip", "-o", "link")) or ""
        return next((names[peer] for _, _, peer in _links(shown) if peer is not None and peer in names), "")

    def _disciplines(self) -> dict[str, tuple[str, str]] | None:
        """Returns (kind, handle) of the discipline at the root of each interface; None where tc cannot tell.

        The kernel does not show those that it has set by itself to interfaces that are down.
        """
        shown = self._run((*self._node, "tc", "qdisc", "show"))
        return None if shown is None else {name: (kind, handle) for kind, handle, name in _QDISC.findall(shown)}

    def _set(self, interface: str, bits: int, found: tuple[str, str]) -> bool:
        """Sets a limit.

        Args:
            found: kind and handle of the discipline that is there.
        """
        kind, handle = found
        if kind and kind not in DEFAULTS and handle != HANDLE:
            self._warn_once(f"{interface} has the queueing discipline {kind} {handle} of other software; it stays")
            return False
        bucket = max(int(bits / 8 * BUCKET_S), LEAST_BUCKET_BYTES)
        words = ("qdisc", "replace", "dev", interface, "root", "handle", HANDLE, "tbf")
        rate = ("rate", f"{bits}bit", "burst", str(bucket), "latency", "50ms")
        return self._run((*self._node, "tc", *words, *rate)) is not None

    def _remove(self, interface: str, shown: Mapping[str, tuple[str, str]]) -> None:
        """Removes a limit; with its pod the interface has gone, too."""
        if shown.get(interface, ("", ""))[1] == HANDLE:
            self._run((*self._node, "tc", "qdisc", "del", "dev", interface, "root"))

    def _run(self, words: tuple[str, ...]) -> str | None:
        """Runs a command; returns its output, None where it failed."""
        done = run_program(words)
        if done.failure:
            self._warn_once(done.failure)
        return None if done.failure else done.output

    def _warn_once(self, text: str) -> None:
        if self._logged.is_new(text):
            log.warning("the ingress of a pod is not limited", extra={"why": text})


def _limited(pods: Iterable[PodCgroups]) -> Iterator[tuple[PodCgroups, PodLimit]]:
    """Yields pods with a network of their own and a limit of what they receive."""
    for each in pods:
        limits = network_qos.limits_of(each.pod)
        if limits is not None and limits.ingress > 0 and not each.pod.spec.host_network:
            yield each, PodLimit(limits.ingress, frozenset(each.containers.values()))


def _links(shown: str) -> Iterator[tuple[int, str, int | None]]:
    """Yields (number, name, number of the other end) of interfaces."""
    for number, name, peer in _LINK.findall(shown):
        yield int(number), name, int(peer) if peer else None
