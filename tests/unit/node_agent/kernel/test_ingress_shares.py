"""Shares of what classes receive: the commands, and packets that a real node forwards to a real pod."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.ingress_shares import (
    IngressShares,
    Receiver,
    class_commands,
    filter_commands,
    shaped_classes,
)
from services.node_agent.qos_manager.strategies.network_qos import BE_MINOR, LS_MINOR, Share, Shares
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.slo_config import NetworkQos, QosClass, QosPolicies, ResourceQos, SystemStrategy
from tests.unit.node_agent.kernel.pod_network import SENDER, Machine
from tests.unit.node_agent.kernel.test_network_qos import pod_cgroups, run


def spec(policy: str = "tc", be_limit: str = "4M") -> NodeSloSpec:
    be = NetworkQos(enable=True, ingress_limit=be_limit)
    qos = ResourceQos(policies=QosPolicies(net_qos_policy=policy), be_class=QosClass(network_qos=be))
    return in_force(
        NodeSloSpec(resource_qos_strategy=qos, system_strategy=SystemStrategy(total_network_bandwidth="1G"))
    )


def test_a_limit_concerns_its_class_and_a_guarantee_both() -> None:
    assert shaped_classes(Shares(10**9)) == {}
    limit = Share(most=4_000_000)
    assert shaped_classes(Shares(10**9, be_in=limit)) == {BE_MINOR: limit}
    least = Share(least=3_000_000)
    assert shaped_classes(Shares(10**9, ls_in=least)) == {LS_MINOR: least, BE_MINOR: Share()}


def test_the_commands_share_by_the_receivers_address() -> None:
    classes = {LS_MINOR: Share(least=300_000_000), BE_MINOR: Share(most=200_000_000)}
    assert list(class_commands(10**9, classes)) == [
        "class replace dev koord-ifb parent 1: classid 1:1 htb rate 1000000000bit ceil 1000000000bit prio 0",
        "class replace dev koord-ifb parent 1:1 classid 1:3 htb rate 300000000bit ceil 1000000000bit prio 2",
        "class replace dev koord-ifb parent 1:1 classid 1:4 htb rate 8000bit ceil 200000000bit prio 3",
    ]
    receivers = (Receiver("10.0.0.7", LS_MINOR), Receiver("fd00::7", BE_MINOR))
    redirect = "action mirred egress redirect dev koord-ifb"
    assert list(filter_commands("eth0", receivers)) == [
        "filter add dev koord-ifb parent 1: protocol ip prio 31757 u32 match ip dst 10.0.0.7/32 flowid 1:3",
        "filter add dev koord-ifb parent 1: protocol ipv6 prio 31758 u32 match ip6 dst fd00::7/128 flowid 1:4",
        f"filter add dev eth0 ingress protocol ip prio 31757 u32 match ip dst 10.0.0.7/32 {redirect}",
        f"filter add dev eth0 ingress protocol ipv6 prio 31758 u32 match ip6 dst fd00::7/128 {redirect}",
    ]


class Routed:
    """A machine whose node forwards packets of another one, which come in at `card0`, to its pod."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.node, self._outside, self._pods = machine.node, f"{machine.node}o", machine.node[:-1] + "p"
        self._in_node, self.folder = ("ip", "netns", "exec", machine.node), folder
        run("ip", "netns", "add", self._outside)
        run(
            "ip",
            "-n",
            self.node,
            "link",
            "add",
            "card0",
            "type",
            "veth",
            "peer",
            "name",
            "far0",
            "netns",
            self._outside,
        )
        for space, card, address in ((self.node, "card0", "10.78.0.1"), (self._outside, "far0", "10.78.0.9")):
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", card)
            run("ip", "-n", space, "link", "set", card, "up")
        run("ip", "-n", self._outside, "route", "add", "default", "via", "10.78.0.1")
        run("ip", "-n", self._pods, "route", "add", "default", "via", "10.77.0.1")
        run(*self._in_node, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        (folder / "1/net").mkdir(parents=True)
        (folder / "1/net/route").write_text("Iface\ncard0\t00000000\t0\t3\t0\t0\t0\t00000000\t0\t0\t0\n")
        self.shares = self.agent()

    def agent(self) -> IngressShares:
        return IngressShares(self.folder, Processes(self.folder, Path("/proc")), self._in_node)

    def seconds(self) -> float:
        """Returns how long 300 kB take from the other machine to the pod."""
        return float(run("ip", "netns", "exec", self._outside, sys.executable, "-c", SENDER))

    def tc(self, *words: str) -> str:
        return run(*self._in_node, "tc", *words)

    def links(self) -> str:
        return run("ip", "-n", self.node, "-o", "link")

    def close(self) -> None:
        subprocess.run(("ip", "netns", "del", self._outside), check=False)


@pytest.fixture
def routed(machine: Machine, tmp_path: Path) -> Iterator[Routed]:
    try:
        run("ip", "-n", machine.node, "link", "add", "probe", "type", "ifb")
    except subprocess.CalledProcessError:
        pytest.skip("this kernel has no ifb")
    made = Routed(machine, tmp_path)
    yield made
    made.close()


def test_pods_of_a_class_receive_no_more_than_its_limit_and_all_is_restored(routed: Routed) -> None:
    pod = pod_cgroups("a", "BE")
    assert routed.seconds() < 0.4
    routed.shares.reconcile(spec(), [pod])
    assert routed.seconds() > 0.5, "300 kB at 4 Mbit/s less the bucket"
    assert "class htb 1:4" in routed.tc("class", "show", "dev", "koord-ifb")
    routed.shares.reconcile(spec(be_limit="800M"), [pod])
    assert routed.seconds() < 0.4
    routed.shares.reconcile(spec(), [pod_cgroups("a", "LS")])
    assert routed.seconds() < 0.4, "only BE has a limit"
    routed.shares.reconcile(spec("terway-qos"), [pod])
    assert "koord-ifb" not in routed.links()
    assert "clsact" not in routed.tc("qdisc", "show", "dev", "card0")
    assert routed.seconds() < 0.4


def test_an_agent_that_was_killed_leaves_nothing_and_filters_of_other_software_stay(routed: Routed) -> None:
    routed.tc("qdisc", "add", "dev", "card0", "clsact")
    words = ("protocol", "ip", "prio", "7", "u32", "match", "ip", "dst", "10.9.9.9/32")
    routed.tc("filter", "add", "dev", "card0", "ingress", *words, "action", "mirred", "egress", "redirect", "dev", "lo")
    routed.shares.reconcile(spec(), [pod_cgroups("a", "BE")])
    assert "31757" in routed.tc("filter", "show", "dev", "card0", "ingress")
    started_again = routed.agent()
    started_again.reconcile(spec("terway-qos"), [])
    assert "koord-ifb" not in routed.links()
    filters = routed.tc("filter", "show", "dev", "card0", "ingress")
    assert "pref 7 " in filters
    assert "31757" not in filters
    assert routed.seconds() < 0.4


def test_an_agent_that_starts_again_takes_over_what_an_earlier_one_left(routed: Routed) -> None:
    routed.shares.reconcile(spec(), [pod_cgroups("a", "BE")])
    started_again = routed.agent()
    started_again.reconcile(spec(), [pod_cgroups("a", "BE")])
    shown = routed.tc("filter", "show", "dev", "card0", "ingress")
    assert shown.count("redirect dev koord-ifb") + shown.count("Redirect to device koord-ifb") == 1
    assert routed.seconds() > 0.5
    started_again.release()
    assert "koord-ifb" not in routed.links()
