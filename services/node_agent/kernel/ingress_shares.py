"""Shares what the node receives for its LS and BE pods, by the classes' ingress requests and limits.

The kernel shapes only what leaves an interface. Packets to pods of these classes are therefore redirected, as they
arrive at the node's network interface, through an intermediate one (`ifb`) with HTB classes; all other packets, and
those between pods of one node, do not pass it. Packets are classified by the receiver's address: pods in the node's
network, and packets of an overlay network, which are addressed to the node, are not shaped.

It needs the programs `tc` and `ip`; ifb, HTB, u32 and act_mirred in the kernel. Source: spec/node-agent.md 3.9
(`networkQOS`, ingressRequest, ingressLimit); upstream enforces them through Terway alone.
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
from services.node_agent.kernel.program_run import LoggedFailures, run_program
from services.node_agent.qos_manager.strategies import network_qos
from services.node_agent.qos_manager.strategies.network_qos import BE_MINOR, LS_MINOR, MAJOR, ROOT_MINOR, Share, Shares
from shared.domain.slo_defaults import NodeSloSpec

log = logging.getLogger(__name__)

INTERMEDIATE = "koord-ifb"
V4_PRIO, V6_PRIO = 31757, 31758
"""Priorities of our filters at the node's interface, by which they are told from those of other software."""
QUEUE_PACKETS = 1000
"""An intermediate interface has 32 by default: too few for one TCP connection."""


class Receiver(NamedTuple):
    """An address of a pod, and the traffic class in which it receives."""

    address: str
    minor: int


def shaped_classes(shares: Shares) -> dict[int, Share]:
    """Returns minor -> share of the classes whose packets are redirected.

    A guaranteed bandwidth concerns both classes: what one is guaranteed, the other one cannot have.
    """
    guaranteed = shares.ls_in.least or shares.be_in.least
    classes = {LS_MINOR: shares.ls_in, BE_MINOR: shares.be_in}
    return {minor: share for minor, share in classes.items() if guaranteed or share.most}


def class_commands(total: int, classes: dict[int, Share]) -> Iterator[str]:
    """Yields commands for tc that create or change the classes of the intermediate interface."""
    yield htb_class(INTERMEDIATE, ROOT_MINOR, total, total, 0, parent=0)
    for minor, share in classes.items():
        yield htb_class(INTERMEDIATE, minor, share.least, share.most or total, minor - 1)


def filter_commands(interface: str, receivers: Iterable[Receiver]) -> Iterator[str]:
    """Yields commands for tc that send packets to their classes: on the intermediate interface, then to it."""
    known = tuple(receivers)
    for device, parent, action in (
        (INTERMEDIATE, f"parent {MAJOR}:", f"flowid {MAJOR}:{{minor:x}}"),
        (interface, "ingress", f"action mirred egress redirect dev {INTERMEDIATE}"),
    ):
        for text, minor in known:
            yield address_filter(device, parent, text, "dst", (V4_PRIO, V6_PRIO), action.format(minor=minor))


class IngressShares:
    """Runs tc and ip when something has changed.

    Attributes:
        interface: the network interface under control; empty while there is none.
    """

    def __init__(self, proc: Path, processes: Processes, node: tuple[str, ...] = ()) -> None:
        """Prepares one.

        Args:
            node: words before each command.
        """
        self.interface = ""
        self._proc, self._processes, self._node = proc, processes, node
        self._done: tuple[object, ...] = ()
        self._cleared = False
        """Nothing is left of an agent that was killed."""
        self._logged = LoggedFailures()

    def reconcile(self, spec: NodeSloSpec, pods: Iterable[PodCgroups]) -> None:
        """Brings the classes to the shares of a NodeSLO; nothing while it has no total bandwidth or no ingress."""
        shares = network_qos.shares(spec)
        classes = shaped_classes(shares)
        interface = default_interface(self._proc)
        if network_qos.policy(spec) != network_qos.TC or shares.total <= 0 or not classes or not interface:
            self.release()
            return
        if self.interface and interface != self.interface:
            self.release()
        receivers = tuple(sorted(self._receivers(pods, classes)))
        what = (interface, shares, receivers)
        if what == self._done:
            return
        # Before the first command: one that fails midway leaves something to be removed.
        self.interface, self._cleared = interface, False
        if self._write(shares.total, classes, receivers):
            self._done = what

    def release(self) -> None:
        """Removes the filters, then the intermediate interface: packets redirected to one that is gone are lost."""
        interface = self.interface or default_interface(self._proc)
        if not self._cleared and interface and self._exists():
            self._remove_filters(interface)
            filters = (self._show("tc", "filter", "show", "dev", interface, way) for way in ("ingress", "egress"))
            if "clsact" in self._show("tc", "qdisc", "show", "dev", interface) and not any(filters):
                self._run("tc", "qdisc", "del", "dev", interface, "clsact")
            self._run("ip", "link", "del", INTERMEDIATE)
        self.interface, self._done, self._cleared = "", (), True

    def _receivers(self, pods: Iterable[PodCgroups], classes: dict[int, Share]) -> Iterator[Receiver]:
        for each in pods:
            minor = network_qos.minor_of(each.pod)
            if minor in classes and not each.pod.spec.host_network:
                for address in addresses_of_pod(each, self._processes):
                    yield Receiver(address, minor)

    def _write(self, total: int, classes: dict[int, Share], receivers: tuple[Receiver, ...]) -> bool:
        """Writes classes, then filters, which are replaced as a whole; reports whether all is in place."""
        if not self._exists() and not self._run("ip", "link", "add", INTERMEDIATE, "type", "ifb"):
            return False
        queue = ("txqueuelen", str(QUEUE_PACKETS))
        if not self._run("ip", "link", "set", "dev", INTERMEDIATE, *queue, "up"):
            return False
        shown = self._show("tc", "qdisc", "show", "dev", self.interface)
        if not {"clsact", "ingress"} & set(shown.split()) and not self._run(
            "tc", "qdisc", "add", "dev", self.interface, "clsact"
        ):
            return False
        shaped = self._show("tc", "qdisc", "show", "dev", INTERMEDIATE, "root")
        if not shaped.startswith(f"qdisc htb {MAJOR}:") and not self._run(
            "tc", "qdisc", "replace", "dev", INTERMEDIATE, "root", "handle", f"{MAJOR}:", "htb"
        ):
            return False
        if not self._batch(class_commands(total, classes)):
            return False
        self._remove_filters(self.interface)
        return self._batch(filter_commands(self.interface, receivers))

    def _remove_filters(self, interface: str) -> None:
        for family, prio in (("ip", V4_PRIO), ("ipv6", V6_PRIO)):
            for at in (("dev", interface, "ingress"), ("dev", INTERMEDIATE, "parent", f"{MAJOR}:")):
                if self._show("tc", "filter", "show", *at, "prio", str(prio)):
                    self._run("tc", "filter", "del", *at, "protocol", family, "prio", str(prio))

    def _exists(self) -> bool:
        return not run_program((*self._node, "ip", "link", "show", "dev", INTERMEDIATE)).failure

    def _show(self, *words: str) -> str:
        """Returns what a program shows; empty where it cannot."""
        return run_program((*self._node, *words)).output

    def _batch(self, commands: Iterable[str]) -> bool:
        given = "".join(f"{command}\n" for command in commands)
        return not given or self._run("tc", "-force", "-batch", "-", given=given)

    def _run(self, *words: str, given: str = "") -> bool:
        """Runs a program; reports whether it succeeded."""
        done = run_program((*self._node, *words), given)
        if done.failure and self._logged.is_new(done.failure):
            log.warning("shares of what pods receive cannot be applied", extra={"why": done.failure})
        return not done.failure
