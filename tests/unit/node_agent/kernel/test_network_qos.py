"""Network QoS: E25 and E26 of spec/node-agent.md 8, and traffic control in a network namespace of its own."""

import ipaddress
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel import terway_qos
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.default_route import default_interface
from services.node_agent.kernel.network_namespace_addresses import addresses
from services.node_agent.kernel.traffic_control import PodClass, TrafficControl, classes, filters
from services.node_agent.qos_manager.strategies import network_qos
from services.node_agent.qos_manager.strategies.network_qos import PodLimits, Share
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.slo_config import NetworkQos, QosClass, QosPolicies, ResourceQos, SystemStrategy
from tests.support.pods import kept_pod


def spec(policy: str = "tc", total: str = "10G") -> NodeSloSpec:
    ls = NetworkQos(enable=True, egress_request="2G", ingress_request=30, egress_limit=100)
    be = NetworkQos(enable=False, egress_request="1G")
    qos = ResourceQos(
        policies=QosPolicies(net_qos_policy=policy),
        ls_class=QosClass(network_qos=ls),
        be_class=QosClass(network_qos=be),
    )
    return in_force(
        NodeSloSpec(resource_qos_strategy=qos, system_strategy=SystemStrategy(total_network_bandwidth=total))
    )


def pod_cgroups(name: str, qos: str, annotation: str = "", *, host: bool = False) -> PodCgroups:
    pod = kept_pod(
        name,
        labels={"koordinator.sh/qosClass": qos} if qos else None,
        annotations={network_qos.ANNOTATION: annotation} if annotation else None,
        phase="Running",
        qos_class="Burstable",
        host_network=host,
    )
    return PodCgroups(f"kubepods/pod{name}", {"1": f"kubepods/pod{name}/c"}, NodePod(pod, {}, frozenset()))


def test_e25_terways_file_of_the_node() -> None:
    text = terway_qos.node_text(network_qos.shares(spec("terway-qos")))
    found = dict(line.split() for line in text.splitlines())
    assert list(found)[:4] == ["hw_tx_bps_max", "hw_rx_bps_max", "offline_l1_tx_bps_min", "offline_l1_tx_bps_max"]
    assert (found["hw_tx_bps_max"], found["offline_l1_tx_bps_min"]) == ("1250000000", "250000000")
    assert found["offline_l1_rx_bps_min"] == "3000000000"
    assert found["offline_l2_tx_bps_min"] == "0"  # not enabled


def test_e25_terways_file_of_pods() -> None:
    limit = '{"ingressLimit":"10M","egressLimit":"20M"}'
    text = terway_qos.pods_text(
        [pod_cgroups("a", "BE", limit), pod_cgroups("b", ""), pod_cgroups("c", "LS", '{"egressLimit":"x"}')]
    )
    assert '"qosConfig":{"egressBandwidth":2500000,"ingressBandwidth":1250000}' in text
    assert '"prio":2' in text
    assert '"cgroupDir":"/sys/fs/cgroup/net_cls/kubepods/poda"' in text
    assert '"podUID":"b"' in text
    assert '"c"' not in text  # invalid


@pytest.mark.parametrize(("minor", "number"), [(2, 65_538), (3, 65_539), (4, 65_540)])
def test_e26_the_number_of_a_class(minor: int, number: int) -> None:
    assert network_qos.class_id(minor) == number


def test_shares_beyond_the_total_are_none() -> None:
    found = network_qos.shares(spec(total="1G"))
    assert found.ls_out == Share(0, 10**9, least_is_percent=False, most_is_percent=True)
    assert network_qos.limits_of(pod_cgroups("a", "LS", '{"egressLimit":"20M"}').pod) == PodLimits(0, 20_000_000)


def test_the_commands_set_guaranteed_and_maximal_rates() -> None:
    own = PodClass(5, 8_000_000, 3, ("10.0.0.7", "fd00::7"))
    assert list(classes("eth0", network_qos.shares(spec()), (own,))) == [
        "class replace dev eth0 parent 1: classid 1:1 htb rate 10000000000bit ceil 10000000000bit prio 0",
        "class replace dev eth0 parent 1:1 classid 1:2 htb rate 8000000000bit ceil 10000000000bit prio 1",
        "class replace dev eth0 parent 1:1 classid 1:3 htb rate 2000000000bit ceil 10000000000bit prio 2",
        "class replace dev eth0 parent 1:1 classid 1:4 htb rate 8000bit ceil 10000000000bit prio 3",
        "class replace dev eth0 parent 1:1 classid 1:5 htb rate 8000000bit ceil 8000000bit prio 3",
    ]
    assert list(filters("eth0", (own,)))[1:] == [
        "filter add dev eth0 parent 1: protocol ip prio 11 u32 match ip src 10.0.0.7/32 flowid 1:5",
        "filter add dev eth0 parent 1: protocol ipv6 prio 12 u32 match ip6 src fd00::7/128 flowid 1:5",
    ]


def test_the_default_routes_card_is_the_one_of_the_lowest_metric(tmp_path: Path) -> None:
    (tmp_path / "1/net").mkdir(parents=True)
    assert default_interface(tmp_path) == ""
    head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    rows = ("wlan0\t00000000\t0101A8C0\t3\t0\t0\t600\t00000000", "eth1\t00000000\t01A8C0\t3\t0\t0\t100\t00000000")
    route = tmp_path / "1/net/route"
    route.write_text(head + "".join(f"{row}\t0\t0\t0\n" for row in (*rows, "eth0\t0000A8C0\t0\t1\t0\t0\t0\t00FFFFFF")))
    assert default_interface(tmp_path) == "eth1"


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def space() -> Iterator[str]:
    """A network namespace of its own, with one interface of a pair."""
    if os.geteuid() != 0 or not shutil.which("tc") or not shutil.which("ip"):
        pytest.skip("no network name space may be made here, or tc and ip are not installed")
    name = f"koord-{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network name space can be made here: {error.stderr.strip()}")
    try:
        run("ip", "-n", name, "link", "add", "card0", "type", "veth", "peer", "name", "card1")
        run("ip", "-n", name, "link", "set", "card0", "up")
        try:
            run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "card1", "root", "handle", "1:", "htb")
        except subprocess.CalledProcessError:
            pytest.skip("this kernel has no HTB")
        yield name
    finally:
        run("ip", "netns", "del", name)


def test_a_real_network_card_is_shared_and_restored(space: str, tmp_path: Path) -> None:
    (tmp_path / "1/net").mkdir(parents=True)
    (tmp_path / "1/net/route").write_text("Iface\ncard0\t00000000\t0\t3\t0\t0\t0\t00000000\t0\t0\t0\n")
    for name, pid, address in (("a", 71, "10.0.0.7"), ("b", 72, "10.0.0.8")):
        folder = tmp_path / f"cpu/kubepods/pod{name}/c"
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(f"{pid}\n")
        (tmp_path / f"{pid}/net").mkdir(parents=True)
        (tmp_path / f"{pid}/net/fib_trie").write_text(
            f"Main:\n  |-- 127.0.0.1\n     /32 host LOCAL\n  |-- {address}\n     /32 host LOCAL\n"
        )
    tc = ("ip", "netns", "exec", space, "tc")
    traffic = TrafficControl(tmp_path, Processes(tmp_path, tmp_path), tc)
    pods = [
        pod_cgroups("a", "BE"),
        pod_cgroups("b", "LS", '{"egressLimit":"8M"}'),
        pod_cgroups("host", "LS", host=True),
    ]
    traffic.reconcile(spec(), pods)
    shown = run(*tc, "class", "show", "dev", "card0")
    assert "class htb 1:3 parent 1:1 leaf" in shown or "class htb 1:3 parent 1:1 prio 2 rate 2Gbit ceil 10Gbit" in shown
    assert "1:5" in shown
    assert "rate 8Mbit ceil 8Mbit" in shown
    rules = run(*tc, "filter", "show", "dev", "card0", "parent", "1:")
    assert rules.count("flowid 1:4") == rules.count("flowid 1:5") == 1
    assert (traffic.minor_of(pods[1].pod), traffic.minor_of(pods[2].pod)) == (5, 3)
    traffic.reconcile(
        spec(total="5G"), [pod_cgroups("a", "LS")]
    )  # another total; the pod with a class of its own is gone
    shown, rules = run(*tc, "class", "show", "dev", "card0"), run(*tc, "filter", "show", "dev", "card0", "parent", "1:")
    assert "5Gbit" in shown
    assert "1:5 " not in shown
    assert (rules.count("flowid 1:3"), rules.count("flowid 1:4")) == (1, 0)
    traffic.reconcile(spec("terway-qos"), [])
    assert "htb" not in run(*tc, "qdisc", "show", "dev", "card0")


def test_addresses_of_this_machines_first_process_are_read() -> None:
    """The addresses equal those that system calls return in this process's namespace."""
    up = {name for name, interface in psutil.net_if_stats().items() if interface.isup}
    shown = {
        ipaddress.ip_address(each.address.partition("%")[0])
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if name in up and each.family in {socket.AF_INET, socket.AF_INET6}
    }
    found = addresses(Path("/proc"), os.getpid())
    assert set(found) == {str(one) for one in shown if not one.is_loopback and not one.is_link_local}


def test_loopback_and_network_addresses_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "7/net").mkdir(parents=True)
    (tmp_path / "7/net/fib_trie").write_text(
        "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     |-- 10.0.0.7\n        /32 host LOCAL\n"
        "     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "     |-- 169.254.3.4\n        /32 host LOCAL\n"
    )
    (tmp_path / "7/net/if_inet6").write_text(
        "00000000000000000000000000000001 01 80 10 80       lo\n"
        "fe800000000000000c11e9fffe000001 02 40 20 80     eth0\n"
        "fd000000000000000000000000000007 02 40 00 80     eth0\n"
    )
    assert addresses(tmp_path, 7) == ("10.0.0.7", "fd00::7")
    assert addresses(tmp_path, 8) == ()
