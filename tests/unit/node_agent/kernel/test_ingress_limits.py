"""Limits of what pods receive, on real pairs of interfaces in network namespaces of their own."""

from pathlib import Path

import pytest

from services.node_agent.kernel.ingress_limits import RECHECK_NS
from tests.unit.node_agent.kernel.pod_network import Machine
from tests.unit.node_agent.kernel.test_network_qos import pod_cgroups, run


def test_a_pod_receives_no_more_than_its_limit_and_the_limit_goes_with_the_annotation(machine: Machine) -> None:
    limited = pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')
    assert machine.seconds() < 0.4
    machine.limits.reconcile([limited])
    assert "tbf 7c0d:" in machine.qdisc()
    run("ip", "netns", "exec", machine.node, "tc", "qdisc", "del", "dev", "veth7", "root")
    machine.limits.reconcile([limited])
    assert "tbf" not in machine.qdisc(), "not looked at yet"
    machine.now_ns += RECHECK_NS
    machine.limits.reconcile([limited])
    assert machine.seconds() > 0.5, "300 kB at 4 Mbit/s less the bucket"
    machine.limits.reconcile([pod_cgroups("a", "LS", '{"ingressLimit":"2M"}')])
    assert "rate 2Mbit" in machine.qdisc()
    machine.limits.reconcile([pod_cgroups("a", "LS")])
    assert "tbf" not in machine.qdisc()
    machine.limits.reconcile([limited])
    machine.limits.release()
    assert "tbf" not in machine.qdisc()


def test_limits_of_other_software_and_pods_in_the_nodes_network_are_left_alone(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.limits.reconcile([pod_cgroups("a", "LS", '{"ingressLimit":"4M"}', host=True)])
    assert "tbf" not in machine.qdisc()
    words = ("qdisc", "add", "dev", "veth7", "root", "handle", "9:", "tbf", "rate", "1gbit", "burst", "1mb")
    run("ip", "netns", "exec", machine.node, "tc", *words, "latency", "50ms")
    for _ in range(2):
        machine.limits.reconcile([pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')])
        machine.now_ns += RECHECK_NS
    machine.limits.release()
    assert "tbf 9:" in machine.qdisc()
    assert ["of other software" in str(record.__dict__["why"]) for record in caplog.records] == [True]


def test_a_pod_without_a_process_is_limited_later(machine: Machine, tmp_path: Path) -> None:
    procs = tmp_path / "cpu/kubepods/poda/c/cgroup.procs"
    procs.write_text("")
    limited = [pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')]
    machine.limits.reconcile(limited)
    assert "tbf" not in machine.qdisc()
    procs.write_text(f"{machine.process.pid}\n")
    machine.limits.reconcile(limited)
    assert "tbf 7c0d:" in machine.qdisc()


def test_programs_are_run_for_pods_that_are_new_or_changed_and_once_a_minute(machine: Machine) -> None:
    limited = pod_cgroups("a", "LS", '{"ingressLimit":"4M"}')
    machine.limits.reconcile([limited])
    assert len(machine.calls()) == 3, "disciplines, interfaces, the limit"
    machine.limits.reconcile([limited])
    assert machine.calls() == []
    machine.now_ns += RECHECK_NS
    machine.limits.reconcile([limited])
    assert machine.calls() == ["tc qdisc show"]
    machine.limits.reconcile([limited._replace(containers={**limited.containers, "2": "kubepods/poda/d"})])
    assert "tc qdisc show" in machine.calls(), "a new container may be of a new sandbox, which has another interface"
