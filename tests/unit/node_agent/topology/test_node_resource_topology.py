"""Topology reports of an agent, on nodes made of files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.qos_manager.strategies.cpu_selection import Processor
from services.node_agent.topology.cpu_model_and_zone_memory import BasicInfo, Hardware, ZoneMemory, read_hardware
from services.node_agent.topology.kubelet_cpu_manager import KubeletConfig
from services.node_agent.topology.node_resource_topology import Kubelet, topology_report, whole_cores_first
from services.node_agent.topology.topology_reporter import (
    KUBELET_POLL_INTERVAL_NS,
    REPEAT_INTERVAL_NS,
    TopologyReporter,
)
from shared.agents.actions import TopologyReported
from shared.agents.node_pods import NodePods
from shared.kube import node_resource_topology as names
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Pod
from tests.support.pods import kept_pod

GIB = 1 << 30
EIGHT = tuple(sorted(Processor(cpu, (cpu // 4) << 16 | cpu % 2, cpu // 4, cpu // 4) for cpu in range(8)))
"""Two sockets, each a NUMA node of two cores with two threads: 0,2 and 1,3; 4,6 and 5,7."""
MACHINE = Hardware(EIGHT, BasicInfo("M", "V"), {0: ZoneMemory(8 * GIB, {}), 1: ZoneMemory(8 * GIB, {})})
NO_KUBELET = Kubelet(None, {})


def node(labels: dict[str, str] | None = None, **annotations: Any) -> Node:
    notes = {f"node.koordinator.sh/{name.replace('_', '-')}": json.dumps(note) for name, note in annotations.items()}
    status = NodeStatus(capacity={"cpu": "8", "memory": "16Gi"}, allocatable={"cpu": "7500m", "memory": "15Gi"})
    return Node(metadata=Metadata(name="n", labels=labels, annotations=notes or None), status=status)


def pod(uid: str, qos: str, cpuset: str = "") -> Pod:
    notes = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpuset})} if cpuset else None
    return kept_pod(uid, labels={"koordinator.sh/qosClass": qos}, annotations=notes)


def reported(of: Node, *pods: Pod, kubelet: Kubelet = NO_KUBELET, machine: Hardware = MACHINE) -> TopologyReported:
    found = topology_report(machine, kubelet, of, pods, huge_pages=False)
    assert found is not None
    assert found.annotations.keys() == names.REPORTED_ANNOTATIONS
    return found


def note(found: TopologyReported, name: str) -> Any:
    return json.loads(found.annotations[name])


def pools(found: TopologyReported, name: str) -> list[str]:
    return [pool["cpuset"] for pool in note(found, name)]


def test_a_node_without_anything_shares_all_its_cpus() -> None:
    found = reported(node())
    whole = [{"socket": 0, "node": 0, "cpuset": "0-3"}, {"socket": 1, "node": 1, "cpuset": "4-7"}]
    assert note(found, names.SHARED_POOLS) == note(found, names.BE_SHARED_POOLS) == whole
    assert note(found, names.CPU_TOPOLOGY)["detail"] == [
        {"id": cpu, "core": 2 * (cpu // 4) + cpu % 2, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)
    ]
    assert note(found, names.CPU_MANAGER_POLICY) == note(found, names.RESERVATION) == {}
    assert note(found, names.POD_CPU_ALLOCS) is note(found, names.SYSTEM_QOS) is None
    assert note(found, names.CPU_BASIC_INFO) == {"cpuModel": "M", "vendorID": "V"}
    assert (found.policy, found.numa_reservation) == ("None", "")


def test_cpus_that_pods_have_leave_the_pools_and_those_of_lse_pods_leave_best_effort_too() -> None:
    found = reported(node(), pod("r", "LSR", "0,2"), pod("e", "LSE", "4-5"), pod("s", "LS"))
    assert pools(found, names.SHARED_POOLS) == ["1,3", "6-7"]
    assert pools(found, names.BE_SHARED_POOLS) == ["0-3", "6-7"]


@pytest.mark.parametrize(
    ("reservation", "reserved"),
    [
        ({"reservedCPUs": "6-7"}, "6-7"),
        ({"resources": {"cpu": "1500m"}}, "0,2"),
        ({"resources": {"cpu": "3"}, "applyPolicy": "ReservedCPUsOnly"}, "0-2"),
        ({"resources": {"memory": "1Gi"}}, ""),
    ],
)
def test_the_nodes_reservation_is_reported_as_cpus_and_leaves_both_pools(reservation: Any, reserved: str) -> None:
    found = reported(node(reservation=reservation))
    assert note(found, names.RESERVATION) == reservation | ({"reservedCPUs": reserved} if reserved else {})
    left = {"6-7": ["0-3", "4-5"], "0,2": ["1,3", "4-7"], "0-2": ["3", "4-7"], "": ["0-3", "4-7"]}[reserved]
    assert pools(found, names.SHARED_POOLS) == pools(found, names.BE_SHARED_POOLS) == left


@pytest.mark.parametrize(("exclusive", "left"), [(True, ["2-3", "4-7"]), (False, ["0-3", "4-7"])])
def test_cpus_of_system_pods_leave_the_pools_when_they_are_exclusive(*, exclusive: bool, left: list[str]) -> None:
    found = reported(node(system_qos_resource={"cpuset": "0-1", "cpusetExclusive": exclusive}))
    assert note(found, names.SYSTEM_QOS) == {"cpuset": "0-1", "cpusetExclusive": exclusive}
    assert pools(found, names.SHARED_POOLS) == left


def test_cpus_assigned_by_a_static_kubelet_are_reported_by_pod_and_leave_the_pools() -> None:
    config = KubeletConfig("static", {"full-pcpus-only": "true"}, kube_reserved={"cpu": "500m"})
    given = {"g": {"a": "4", "b": "6"}, "ls": {"a": "5"}, "r": {"a": "7"}, "gone": {"a": "1"}, "shares": {"a": ""}}
    pods = pod("g", ""), pod("ls", "LS"), pod("r", "LSR", "7"), pod("shares", "")
    found = reported(node(), *pods, kubelet=Kubelet(config, given))
    assert note(found, names.POD_CPU_ALLOCS) == [
        {"namespace": "d", "name": "g", "uid": "g", "cpuset": "4,6", "managedByKubelet": True},
        {"uid": "gone", "cpuset": "1", "managedByKubelet": True},
    ]
    assert note(found, names.CPU_MANAGER_POLICY) == {
        "policy": "static",
        "options": {"full-pcpus-only": "true"},
        "reservedCPUs": "0",
    }
    assert pools(found, names.SHARED_POOLS) == ["0,2-3", "5"], "what the kubelet holds back stays shared"
    found = reported(node(), *pods, kubelet=Kubelet(KubeletConfig("none"), given))
    assert note(found, names.POD_CPU_ALLOCS) is None


@pytest.mark.parametrize(
    ("policy", "scope", "expected"),
    [
        ("none", "pod", "None"),
        ("best-effort", "container", "BestEffortContainerLevel"),
        ("restricted", "pod", "RestrictedPodLevel"),
        ("single-numa-node", "pod", "SingleNUMANodePodLevel"),
        ("single-numa-node", "elsewhere", "None"),
    ],
)
def test_the_policy_is_that_of_the_kubelet(policy: str, scope: str, expected: str) -> None:
    kubelet = Kubelet(KubeletConfig(topology_policy=policy, topology_scope=scope), {})
    assert reported(node(), kubelet=kubelet).policy == expected


def test_e29_the_kubelets_reservation_is_subtracted_from_each_zone_when_the_label_requests_it() -> None:
    sixty_four = tuple(Processor(cpu, cpu, cpu // 32, cpu // 32) for cpu in range(64))
    machine = Hardware(sixty_four, BasicInfo(), MACHINE.memory)
    amounts = {"cpu": "64", "memory": "16Gi"}, {"cpu": "61", "memory": "15Gi"}
    labelled = Metadata(name="n", labels={names.NUMA_RESERVATION: "true"})
    found = reported(
        Node(metadata=labelled, status=NodeStatus(capacity=amounts[0], allocatable=amounts[1])), machine=machine
    )
    assert found.numa_reservation == "true"
    assert [zone.name for zone in found.zones] == ["node-0", "node-1"]
    for zone in found.zones:
        assert zone.resources["cpu"] == ("32", "30500m")
        assert zone.resources["memory"] == ("8Gi", "7680Mi")
        assert zone.resources["hugepages-2Mi"] == ("0", "0")
    whole = reported(node(), machine=machine)
    assert {zone.resources["cpu"] for zone in whole.zones} == {("32", "32")}


def test_huge_pages_are_counted_apart_under_their_gate() -> None:
    huge = {"hugepages-1Gi": 2 * GIB, "hugepages-2Mi": 4 << 20}
    machine = MACHINE._replace(memory={0: ZoneMemory(8 * GIB, huge), 1: ZoneMemory(8 * GIB, dict.fromkeys(huge, 0))})
    found = topology_report(machine, NO_KUBELET, node(), (), huge_pages=True)
    assert found is not None
    assert found.zones[0].resources == {
        "cpu": ("4", "4"),
        "hugepages-1Gi": ("2Gi", "2Gi"),
        "hugepages-2Mi": ("4Mi", "4Mi"),
        "memory": ("6140Mi", "6140Mi"),
    }


@pytest.mark.parametrize("memory", [{}, {0: ZoneMemory(GIB, {})}, {0: ZoneMemory(GIB, {}), 2: ZoneMemory(GIB, {})}])
def test_nothing_is_reported_where_cpus_and_memory_disagree_about_zones(memory: dict[int, ZoneMemory]) -> None:
    assert topology_report(MACHINE._replace(memory=memory), NO_KUBELET, node(), (), huge_pages=False) is None


@pytest.mark.parametrize(
    ("count", "taken"), [(0, set()), (1, {0}), (2, {0, 2}), (3, {0, 2, 1}), (5, {0, 1, 2, 3, 4}), (99, set(range(8)))]
)
def test_cpus_are_taken_by_whole_cores_first(count: int, taken: set[int]) -> None:
    assert whole_cores_first(count, EIGHT) == taken


class Files:
    """A node's /proc, /sys and kubelet, as files; and the reports of its TopologyReporter."""

    def __init__(self, root: Path, **gates: bool) -> None:
        self.root = root
        self.write(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\n\nprocessor\t: 1\nmodel name\t: Other\n",
        )
        for cpu in range(2):
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "0")
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", str(cpu))
        self.write("sys/devices/system/cpu/smt/active", "1")
        self.write("sys/devices/system/cpu/intel_pstate/no_turbo", "0")
        self.write("sys/fs/resctrl/info/L3/cbm_mask", "7ff")
        self.write("sys/devices/system/node/node0/cpulist", "0-1")
        self.write("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       4194304 kB\nNode 0 MemFree: 5 kB\n")
        self.write("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "8")
        self.write("sys/devices/system/node/node1/cpulist", "")
        self.write("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       0 kB\n")
        self.reports: list[TopologyReported] = []
        gates = {"NodeTopologyReport": True, "HugePageReport": False} | gates
        places = (root / "proc", root / "sys", root / "kubelet", root / "kubelet/config.yaml")
        self.topology_reporter = TopologyReporter(*places, gates, self.reports.append)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def policy(self) -> Mapping[str, Any]:
        return json.loads(self.reports[-1].annotations[names.CPU_MANAGER_POLICY])  # type: ignore[no-any-return]


def test_hardware_is_read_from_procfs_and_sysfs(tmp_path: Path) -> None:
    Files(tmp_path)
    found = read_hardware(tmp_path / "proc", tmp_path / "sys")
    assert found.basic == BasicInfo("Xeon", "GenuineIntel", hyper_threads=True, turbo=True, cache_mask="7ff")
    assert found.memory == {0: ZoneMemory(4 * GIB, {"hugepages-1Gi": 0, "hugepages-2Mi": 16 << 20})}
    assert [one.cpu for one in found.processors] == [0, 1]
    nothing = read_hardware(tmp_path / "none", tmp_path / "none")
    assert nothing == Hardware((), BasicInfo(), {})


def test_it_is_reported_on_each_change_and_repeated_at_intervals(tmp_path: Path) -> None:
    files = Files(tmp_path)
    known = NodePods("n", 1, 1, node())
    files.topology_reporter.run_cycle(NodePods("n", 1, 0), 0)
    assert files.reports == [], "the node is not known yet"
    files.topology_reporter.run_cycle(known, 0)
    files.topology_reporter.run_cycle(known, KUBELET_POLL_INTERVAL_NS)
    assert len(files.reports) == 1
    files.topology_reporter.run_cycle(
        NodePods("n", 1, 2, node(), pods=(pod("r", "LSR", "1"),)), KUBELET_POLL_INTERVAL_NS + 1
    )
    assert pools(files.reports[-1], names.SHARED_POOLS) == ["0"]
    assert len(files.reports) == 2
    files.topology_reporter.run_cycle(
        NodePods("n", 1, 2, node(), pods=(pod("r", "LSR", "1"),)), KUBELET_POLL_INTERVAL_NS + REPEAT_INTERVAL_NS + 1
    )
    assert len(files.reports) == 3
    assert files.reports[1] == files.reports[2]


def test_an_unreadable_kubelet_file_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    known = NodePods("n", 1, 1, node())
    files.write("kubelet/config.yaml", "cpuManagerPolicy: static\nreservedSystemCPUs: '1'\nunknown: [1]\n")
    files.write("kubelet/cpu_manager_state", '{"policyName":"static","entries":{"g":{"c":"0"}},"checksum":1}')
    files.topology_reporter.run_cycle(known, 0)
    assert files.policy() == {"policy": "static", "reservedCPUs": "1"}
    assert pools(files.reports[-1], names.SHARED_POOLS) == ["1"]
    for number, (name, text) in enumerate(
        (("config.yaml", "- a list"), ("config.yaml", "a: ["), ("cpu_manager_state", "{")), start=1
    ):
        files.write(f"kubelet/{name}", text)
        files.topology_reporter.run_cycle(known, number * KUBELET_POLL_INTERVAL_NS)
        files.topology_reporter.run_cycle(known, number * KUBELET_POLL_INTERVAL_NS + KUBELET_POLL_INTERVAL_NS // 2)
        assert len(files.reports) == 1
    logged = [record.why.partition(": ")[0].rpartition("/")[2] for record in caplog.records]  # type: ignore[attr-defined]
    assert logged == ["config.yaml", "config.yaml"]
    files.write("kubelet/config.yaml", "cpuManagerPolicy: static")
    files.topology_reporter.run_cycle(known, 4 * KUBELET_POLL_INTERVAL_NS)
    assert "cpu_manager_state" in caplog.records[-1].why  # type: ignore[attr-defined]
    files.write("kubelet/cpu_manager_state", "")
    files.topology_reporter.run_cycle(known, 5 * KUBELET_POLL_INTERVAL_NS)
    assert files.policy() == {"policy": "static"}


def test_nothing_is_reported_with_the_gate_off(tmp_path: Path) -> None:
    files = Files(tmp_path, NodeTopologyReport=False)
    files.topology_reporter.run_cycle(NodePods("n", 1, 1, node()), 0)
    assert files.reports == []
