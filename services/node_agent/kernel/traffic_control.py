"""Traffic control on the node's network interface: HTB classes for SYSTEM, LS and BE, and for single pods with a limit.

Packets are classified by the sender's cgroup (`net_cls`) and by the source address: packets of a pod with a network of
its own leave without a cgroup. Upstream keeps addresses in ipsets that iptables marks; here the classifier matches them
itself.

It needs the program `tc`, HTB and u32 in the kernel, and for processes in the node's network cls_cgroup. Source:
spec/node-agent.md 3.9.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.default_route import default_interface
from services.node_agent.kernel.htb_classes import address_filter, htb_class
from services.node_agent.kernel.network_namespace_addresses import addresses_of_pod
from services.node_agent.kernel.program_run import LoggedFailures, ProgramResult, run_program
from services.node_agent.qos_manager.strategies import network_qos
from services.node_agent.qos_manager.strategies.network_qos import (
    BE_MINOR,
    LS_MINOR,
    MAJOR,
    ROOT_MINOR,
    SYSTEM_MINOR,
    Shares,
)
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.pod import Pod

log = logging.getLogger(__name__)

FIRST_POD_MINOR, LAST_MINOR = 5, 0xFFFE
CGROUP_PRIO, V4_PRIO, V6_PRIO = 10, 11, 12


class PodClass(NamedTuple):
    """One pod in traffic control.

    Attributes:
        minor: of its class.
        egress: bits a second of a class of its own; 0: it shares its QoS class's.
        prio: of such a class.
        addresses: of its own network; none for a pod in the node's network.
    """

    minor: int
    egress: int
    prio: int
    addresses: tuple[str, ...]


def classes(interface: str, shares: Shares, pods: Iterable[PodClass]) -> Iterator[str]:
    """Yields commands for tc that create or change every class."""
    total = shares.total
    system = max(total - shares.ls_out.least - shares.be_out.least, 0)

    yield htb_class(interface, ROOT_MINOR, total, total, 0, parent=0)
    yield htb_class(interface, SYSTEM_MINOR, system, total, 1)
    yield htb_class(interface, LS_MINOR, shares.ls_out.least, shares.ls_out.most or total, 2)
    yield htb_class(interface, BE_MINOR, shares.be_out.least, shares.be_out.most or total, 3)
    for pod in pods:
        if pod.egress:
            yield htb_class(interface, pod.minor, pod.egress, pod.egress, pod.prio)


def filters(interface: str, pods: Iterable[PodClass]) -> Iterator[str]:
    """Yields commands for tc that send packets to their classes."""
    yield f"filter replace dev {interface} parent {MAJOR}: protocol all prio {CGROUP_PRIO} handle 1: cgroup"
    for pod in pods:
        for text in pod.addresses:
            flow = f"flowid {MAJOR}:{pod.minor:x}"
            yield address_filter(interface, f"parent {MAJOR}:", text, "src", (V4_PRIO, V6_PRIO), flow)


class TrafficControl:
    """Runs tc when something has changed.

    Attributes:
        interface: the network interface under control; empty while there is none.
    """

    def __init__(self, proc: Path, processes: Processes, tc: tuple[str, ...] = ("tc",)) -> None:
        self._proc, self._processes, self._tc = proc, processes, tc
        self.interface = ""
        self._done: tuple[object, ...] = ()
        self._own: dict[str, int] = {}
        """Uid of a pod with a class of its own -> its minor."""
        self._logged = LoggedFailures()

    def reconcile(self, spec: NodeSloSpec, pods: Iterable[PodCgroups]) -> None:
        """Brings traffic control to the shares of a NodeSLO; nothing while it has no total bandwidth."""
        shares = network_qos.shares(spec)
        if network_qos.policy(spec) != network_qos.TC or shares.total <= 0:
            self.release()
            return
        interface = default_interface(self._proc)
        if not interface:
            self._warn_once("there is no default route, so no network interface to share")
            return
        if self.interface and interface != self.interface:
            self.release()
        found = dict(self._pods(pods))
        what = (interface, shares, tuple(sorted(found.items())))
        if what == self._done:
            return
        if self._write(interface, shares, tuple(found.values())):
            self.interface, self._done = interface, what

    def minor_of(self, pod: Pod) -> int | None:
        """Returns the class of a pod: its own, else its QoS class's; None without a label."""
        minor = network_qos.minor_of(pod)
        return None if minor is None else self._own.get(pod.metadata.uid, minor)

    def release(self) -> None:
        """Restores the kernel's default queueing discipline."""
        if self.interface:
            self._run([f"qdisc del dev {self.interface} root"])
        self.interface, self._done, self._own = "", (), {}

    def _pods(self, pods: Iterable[PodCgroups]) -> Iterator[tuple[str, PodClass]]:
        pod_cgroups = list(pods)
        here = {each.pod.metadata.uid for each in pod_cgroups}
        self._own = {uid: minor for uid, minor in self._own.items() if uid in here}
        for each in pod_cgroups:
            minor, limits, uid = network_qos.minor_of(each.pod), network_qos.limits_of(each.pod), each.pod.metadata.uid
            if minor is None:
                continue
            egress = limits.egress if limits is not None else 0
            addresses = () if each.pod.spec.host_network else addresses_of_pod(each, self._processes)
            if egress:
                yield uid, PodClass(self._minor(uid), egress, {SYSTEM_MINOR: 1, LS_MINOR: 2}.get(minor, 3), addresses)
            else:
                self._own.pop(uid, None)
                if addresses:
                    yield uid, PodClass(minor, 0, 0, addresses)

    def _minor(self, uid: str) -> int:
        """Returns the number of a pod's own class: the first that is free."""
        if uid not in self._own:
            taken = set(self._own.values())
            self._own[uid] = next(n for n in range(FIRST_POD_MINOR, LAST_MINOR) if n not in taken)
        return self._own[uid]

    def _write(self, interface: str, shares: Shares, pods: tuple[PodClass, ...]) -> bool:
        """Writes classes, then filters. Filters for addresses are replaced as a whole.

        Classes of gone pods are removed last.
        """
        shown = self._show("qdisc", "show", "dev", interface, "root")
        if shown.failure:
            self._warn_once(shown.failure)
            return False
        if not shown.output.startswith(f"qdisc htb {MAJOR}:") and not self._run(
            [f"qdisc replace dev {interface} root handle {MAJOR}: htb default {SYSTEM_MINOR}"]
        ):
            return False
        if not self._run(list(classes(interface, shares, pods))):
            return False
        by_cgroup, *by_address = filters(interface, pods)
        self._run([by_cgroup])  # a kernel without cls_cgroup shares by address alone
        for family, prio in (("ip", V4_PRIO), ("ipv6", V6_PRIO)):
            if self._show("filter", "show", "dev", interface, "parent", f"{MAJOR}:", "prio", str(prio)).output:
                self._run([f"filter del dev {interface} parent {MAJOR}: protocol {family} prio {prio}"])
        done = not by_address or self._run(by_address)
        desired = {pod.minor for pod in pods if pod.egress}
        gone = [minor for minor in self._shown_minors(interface) if minor >= FIRST_POD_MINOR and minor not in desired]
        if gone:
            self._run([f"class del dev {interface} classid {MAJOR}:{minor:x}" for minor in gone])
        return done

    def _shown_minors(self, interface: str) -> list[int]:
        found = []
        for line in self._show("class", "show", "dev", interface).output.splitlines():
            words = line.split()
            if words[:2] == ["class", "htb"] and words[2].startswith(f"{MAJOR}:"):
                found.append(int(words[2].partition(":")[2], 16))
        return found

    def _show(self, *words: str) -> ProgramResult:
        return run_program((*self._tc, *words))

    def _run(self, commands: list[str]) -> bool:
        """Runs commands in one call of tc; reports whether all succeeded."""
        done = run_program((*self._tc, "-force", "-batch", "-"), "\n".join(commands) + "\n")
        if done.failure:
            self._warn_once(f"tc does not take {commands[0]!r}: {done.failure}")
        return not done.failure

    def _warn_once(self, text: str) -> None:
        """Logs a warning unless its text was logged before."""
        if self._logged.is_new(text):
            log.warning("network shares cannot be applied", extra={"why": text})
