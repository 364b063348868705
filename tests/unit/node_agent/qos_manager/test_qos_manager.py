"""The QoS manager on a node made of files: cgroups of both versions, a clock moved by hand, messages of ingest."""

from pathlib import Path

import pytest

from services.node_agent import feature_gates
from services.node_agent.collectors.usage_sample_types import Usage
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents.actions import EvictionRequested, Suppressed
from shared.kube.instants import SECOND
from shared.kube.node_resource_topology import SHARED_POOLS
from tests.unit.node_agent.cgroup.cgroup_trees import KINDS
from tests.unit.node_agent.qos_manager.managed_node import BATCH, BE, CID, GIB, LS, WEB, ManagedNode


@pytest.fixture(params=KINDS)
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> ManagedNode:
    return ManagedNode(tmp_path, request.param)


def test_batch_resources_become_shares_quota_and_limit_of_a_best_effort_pod(machine: ManagedNode) -> None:
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    v1 = machine.files.tree.version == 1
    for folder in (BE, f"{BE}/{CID['be']}"):
        assert machine.files.text("cpu.shares", folder) == ("2048" if v1 else "79")
        assert machine.files.text("cpu.cfs_quota_us", folder) == "200000"
        assert machine.files.text("memory.limit_in_bytes", folder) == str(GIB)
    assert machine.files.text("cpu.shares", LS) == ("1024" if v1 else "100")


def test_suppress_limits_best_effort_and_restores_it(machine: ManagedNode) -> None:
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65})
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)  # 5.2 - 2.5 - 0.5 = 2.2 cores: 3 CPUs
    folders = ("kubepods/besteffort", BE, f"{BE}/{CID['be']}")
    assert {machine.cpus(folder) for folder in folders} == {"0-1,4"}
    assert machine.cpus(LS) in {"0-7", ""}
    assert machine.actions == [Suppressed("cpuset", 2_200, "0-1,4")]
    machine.files.settle()
    machine.slo(resourceUsedThresholdWithBE={"enable": False})
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    assert {machine.cpus(folder) for folder in folders} == {"0-7"}
    assert machine.actions[-1] == Suppressed("cpuset")


def test_changes_are_written_each_second_and_reported_at_intervals(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.slo(resourceUsedThresholdWithBE={"enable": True})
    sets = set()
    for second in range(12):
        machine.run_cycle(node=2.0 + second % 3, ls=0.5 + second % 3, be=1.0)
        sets.add(machine.cpus(BE))
    assert len(sets) == 3
    assert len(machine.actions) == 2


def test_host_applications_count_apart_and_get_identity_and_cpus_of_their_class(machine: ManagedNode) -> None:
    folders = ("host-latency-sensitive/nginx", "host-best-effort/spark")
    for folder in folders:
        machine.files.make(folder)
    machine.pods(BATCH, WEB, topology={SHARED_POOLS: '[{"socket":0,"node":0,"cpuset":"2-7"}]'})
    machine.slo(
        resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65},
        resourceQOSStrategy={"lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}},
        hostApplications=[
            {"name": "nginx", "qos": "LS"},
            {"name": "spark", "qos": "BE"},
            {"name": "gone", "qos": "LS"},
        ],
    )
    hosts = {"nginx": Usage(1_000_000, GIB), "spark": Usage(500_000, GIB)}
    machine.run_cycle(node=5.0, ls=1.0, be=1.0, hosts=hosts)  # 5.2 - 1.0 - 1.5 - 1.5 of the system
    (action,) = machine.actions
    assert isinstance(action, Suppressed)
    assert action.cpu_milli == 1_200
    group_identity = machine.files.has("cpu.bvt_warp_ns", folders[0])
    if group_identity:
        assert [machine.files.text("cpu.bvt_warp_ns", folder) for folder in folders] == ["2", "0"]
    assert machine.cpus(folders[0]) == "2-7"
    machine.files.settle()
    machine.qos_manager.release()
    assert not group_identity or machine.files.text("cpu.bvt_warp_ns", folders[0]) == "0"
    assert machine.cpus(folders[0]) in {"0-7", ""}


def test_without_a_nodeslo_best_effort_is_left_alone(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.files.put("cpuset.cpus", "kubepods/besteffort", "0-1")
    machine.run_cycle(node=2.0, ls=0.5, be=1.0)
    assert machine.cpus("kubepods/besteffort") == "0-1"


def test_at_the_end_cgroups_are_as_they_were(machine: ManagedNode) -> None:
    before = machine.files.contents()
    machine.slo(
        resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"},
        resourceQOSStrategy={"lsClass": {"cpuQOS": {"enable": True, "groupIdentity": 2}}},
    )
    machine.run_cycle(node=6.0, ls=4.5, be=1.0)
    assert machine.files.text("cpu.cfs_quota_us", "kubepods/besteffort") not in {"-1", "max", "max 100000"}
    assert not machine.files.has("cpu.bvt_warp_ns", LS) or machine.files.text("cpu.bvt_warp_ns", LS) == "2"
    machine.qos_manager.release()
    same = {"-1", "max", "max 100000", "9223372036854771712"}
    for path, text in before.items():
        if not path.name.startswith("cpuset."):
            assert path.read_text().strip() == text.strip() or {path.read_text().strip(), text.strip()} <= same, path


def test_a_killed_agent_still_has_the_original_values(machine: ManagedNode) -> None:
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    machine.qos_manager = machine.new_qos_manager()
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    machine.qos_manager.release()
    assert machine.files.text("cpu.shares", BE) == ("1024" if machine.files.tree.version == 1 else "100")


def test_without_a_bus_the_newest_node_slo_stays_in_force_after_a_restart(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.slo(resourceUsedThresholdWithBE={"enable": True})
    restarted = NodeSloInformer("n", tmp_path / "state"), NodePodsInformer("n", tmp_path / "state")
    for slo_informer in restarted:
        slo_informer.load()
    machine._slo, machine._pods = restarted
    machine.qos_manager = machine.new_qos_manager()
    machine.run_cycle(node=4.0, ls=2.5, be=1.0)
    assert machine.cpus(BE) == "0-1,4"


def test_memory_pressure_requests_the_eviction_of_best_effort_with_its_reason(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 2, "BEMemoryEvict=true")
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": 70})
    machine.run_cycle(node=1, ls=0.5, be=0.3, memory=13 * GIB)
    machine.run_cycle(node=1, ls=0.5, be=0.3, memory=13 * GIB)
    requested = [action for action in machine.actions if isinstance(action, EvictionRequested)]
    assert requested == [
        EvictionRequested("be", "trigger by koordlet feature BEMemoryEvict: to release memory 2233382993")
    ]


def test_a_throttled_container_gets_a_larger_quota_and_loses_it_again(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.slo(cpuBurstStrategy={"policy": "auto", "cpuBurstPercent": 200})
    container = f"{LS}/{CID['ls']}"
    for folder, quota in ((LS, "200000"), (container, "200000")):
        machine.files.put("cpu.cfs_quota_us", folder, quota)
    (tmp_path / f"cgroup/cpuacct/{container}").mkdir(parents=True)
    for second in range(4):
        (tmp_path / f"cgroup/cpuacct/{container}/cpuacct.usage").write_text(f"{second * 2 * SECOND}\n")
        (tmp_path / f"cgroup/cpu/{container}/cpu.stat").write_text(
            f"nr_periods {second * 10}\nnr_throttled {second * 5}\nthrottled_time 1\n"
        )
        machine.run_cycle(node=2.2, ls=2.0, be=0.1)
    assert machine.files.text("cpu.cfs_burst_us", container) == "400000"
    assert int(machine.files.text("cpu.cfs_quota_us", container)) > 240_000
    assert machine.files.text("cpu.cfs_quota_us", LS) == machine.files.text("cpu.cfs_quota_us", container)
    machine.slo(cpuBurstStrategy={"policy": "none"})
    machine.run_cycle(node=2.2, ls=2.0, be=0.1)
    assert machine.files.text("cpu.cfs_quota_us", container) == "200000"
    assert machine.files.text("cpu.cfs_burst_us", container) == "0"


@pytest.mark.parametrize("kind", KINDS[1:])
def test_memory_qos_is_written_where_its_gate_is_on(tmp_path: Path, kind: int | str) -> None:
    machine = ManagedNode(tmp_path, kind, "CgroupReconcile=true")
    machine.slo(resourceQOSStrategy={"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}})
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    assert machine.files.text("memory.min", LS) == str(GIB // 2)
    assert machine.files.text("memory.min", "kubepods/burstable") == str(GIB // 2)
    assert machine.files.text("memory.min", f"{LS}/{CID['ls']}") == str(GIB // 2)


def test_features_that_the_node_slo_does_not_set_are_not_touched(machine: ManagedNode) -> None:
    machine.pods(WEB)
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    assert machine.qos_manager.executor is not None
    assert machine.qos_manager.executor.written == 0
    assert machine.actions == []


def test_an_unknown_gate_is_named() -> None:
    with pytest.raises(feature_gates.BadFeatures, match="CPUBrust"):
        feature_gates.parse("CPUBrust=true")
