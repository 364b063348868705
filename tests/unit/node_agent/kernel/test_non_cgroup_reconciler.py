"""Kernel settings, resctrl groups and OOM scores, on files laid out as the kernel's; E24 of spec/node-agent.md 8."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from services.node_agent import feature_gates
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.kernel.non_cgroup_reconciler import NonCgroupReconciler
from services.node_agent.qos_manager.strategies import kernel_settings, resctrl
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from services.node_agent.qos_manager.strategies.resctrl import ANNOTATION
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.slo_config import CpuQos, QosClass, QosPolicies, ResctrlQos, ResourceQos, SystemStrategy
from tests.support.pods import kept_pod

NODE = Node(metadata=Metadata(name="n"), status=NodeStatus(capacity={"memory": "64Gi"}))
GATES = feature_gates.parse("SystemConfig=true,OOMScoreAdj=true")
FOLDER = "kubepods/podx/c1"


@pytest.fixture
def files(tmp_path: Path) -> NonCgroupReconciler:
    for name in ("proc/sys/vm", "proc/42", "sys/fs/resctrl/info/L3", f"cgroup/cpu/{FOLDER}"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/sys/vm/min_free_kbytes").write_text("67584\n")
    (tmp_path / "proc/42/oom_score_adj").write_text("0\n")
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nvendor_id\t: GenuineIntel\n")
    (tmp_path / "sys/fs/resctrl/info/L3/cbm_mask").write_text("7ff\n")
    (tmp_path / "sys/fs/resctrl/schemata").write_text("    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
    for file in ("tasks", "cgroup.procs"):
        (tmp_path / f"cgroup/cpu/{FOLDER}/{file}").write_text("42\n")
    return made(tmp_path)


def made(folder: Path, gates: Mapping[str, bool] = GATES, clock: Callable[[], int] = lambda: 0) -> NonCgroupReconciler:
    return NonCgroupReconciler(
        folder / "proc", folder / "sys", folder / "cgroup", folder / "state", gates, clock, folder / "terway"
    )


def pod_cgroups(qos: str, **annotations: str) -> PodCgroups:
    named = {
        f"koordinator.sh/{name.replace('_', '-')}": text for name, text in annotations.items() if name != "resctrl"
    }
    if "resctrl" in annotations:
        named[ANNOTATION] = annotations["resctrl"]
    pod = kept_pod(uid="x", labels={"koordinator.sh/qosClass": qos}, annotations=named, phase="Running")
    return PodCgroups("kubepods/podx", {"1": FOLDER}, NodePod(pod, {"c": "1"}, frozenset({"c"})))


@pytest.mark.parametrize(("factor", "found"), [(100, "671088"), (1, None)])
def test_e24_min_free_kbytes(factor: int, found: str | None) -> None:
    desired = kernel_settings.desired_settings(SystemStrategy(min_free_kbytes_factor=factor), 64 << 30)
    assert desired.get("proc/sys/vm/min_free_kbytes") == found


def test_kernel_settings_are_set_and_restored(files: NonCgroupReconciler, tmp_path: Path) -> None:
    spec = in_force(NodeSloSpec(system_strategy=SystemStrategy(min_free_kbytes_factor=100, watermark_scale_factor=150)))
    files.reconcile(spec, NODE, [])
    file = tmp_path / "proc/sys/vm/min_free_kbytes"
    assert file.read_text() == "671088"
    assert not (tmp_path / "proc/sys/vm/watermark_scale_factor").exists()
    files.release()
    assert file.read_text() == "67584"


def test_classes_share_the_cache_as_the_node_slo_requires(files: NonCgroupReconciler, tmp_path: Path) -> None:
    be = QosClass(resctrl_qos=ResctrlQos(enable=True, cat_range_end_percent=30))
    spec = in_force(NodeSloSpec(resource_qos_strategy=ResourceQos(be_class=be)))
    files.reconcile(spec, NODE, [pod_cgroups("BE")])
    assert (tmp_path / "sys/fs/resctrl/BE/schemata").read_text() == "L3:0=f;1=f;\n"
    assert (tmp_path / "sys/fs/resctrl/BE/tasks").read_text() == "42"


def test_processes_get_the_score_of_their_pods_annotation(files: NonCgroupReconciler, tmp_path: Path) -> None:
    files.reconcile(in_force(NodeSloSpec()), NODE, [pod_cgroups("LS", oom_score_adj="-500")])
    assert (tmp_path / "proc/42/oom_score_adj").read_text() == "-500"


@pytest.mark.usefixtures("files")
def test_files_of_disabled_gates_are_left_alone(tmp_path: Path) -> None:
    spec = in_force(NodeSloSpec(system_strategy=SystemStrategy(min_free_kbytes_factor=100)))
    made(tmp_path, feature_gates.parse("")).reconcile(spec, NODE, [pod_cgroups("LS", oom_score_adj="-500")])
    assert (tmp_path / "proc/sys/vm/min_free_kbytes").read_text() == "67584\n"
    assert (tmp_path / "proc/42/oom_score_adj").read_text() == "0\n"
    assert not (tmp_path / "sys/fs/resctrl/BE").exists()


def test_features_of_the_scheduler_are_switched_and_restored(files: NonCgroupReconciler, tmp_path: Path) -> None:
    debug = tmp_path / "sys/kernel/debug/sched"
    debug.mkdir(parents=True)
    (debug / "features").write_text("GENTLE_FAIR_SLEEPERS NO_HRTICK WAKEUP_PREEMPTION\n")
    desired = {"HRTICK": True, "WAKEUP_PREEMPTION": True, "UNKNOWN": True}
    files.reconcile(in_force(NodeSloSpec(system_strategy=SystemStrategy(sched_features=desired))), NODE, [])
    assert (debug / "features").read_text() == "HRTICK"  # one word a write; the kernel keeps the others
    files.release()
    assert (debug / "features").read_text() == "NO_HRTICK"


POLICY = {"groupIdentity": ("0", "1"), "coreSched": ("1", "0")}


@pytest.mark.parametrize("policy", POLICY)
def test_the_policy_of_the_cpu_sets_the_kernels_switches(
    policy: str, tmp_path: Path, files: NonCgroupReconciler
) -> None:
    kernel = tmp_path / "proc/sys/kernel"
    kernel.mkdir(parents=True)
    switches = [kernel / name for name in ("sched_core", "sched_group_identity_enabled")]
    for file, text in zip(switches, reversed(POLICY[policy]), strict=True):
        file.write_text(f"{text}\n")
    cpu = QosClass(cpu_qos=CpuQos(enable=True))
    qos = ResourceQos(policies=QosPolicies(cpu_policy=policy), be_class=cpu)
    both = made(tmp_path, feature_gates.parse("CoreSched=true"))
    both.reconcile(in_force(NodeSloSpec(resource_qos_strategy=qos)), NODE, [])
    assert tuple(file.read_text() for file in switches) == POLICY[policy]
    both.release()
    assert tuple(file.read_text() for file in switches) == tuple(reversed(POLICY[policy]))


OWN = '{"llc":{"schemata":{"range":[0,50]},"schemataPerCache":[{"cacheID":1,"range":[10,50]}]},"mb":{"schemata":{"percent":35}}}'


def test_a_pod_may_have_a_share_of_the_cache_of_its_own_which_goes_with_it(
    files: NonCgroupReconciler, tmp_path: Path
) -> None:
    now = [0]
    own = made(tmp_path, feature_gates.parse("Resctrl=true"), lambda: now[0])
    group = tmp_path / "sys/fs/resctrl/koordlet-x"
    group.mkdir()
    (group / "schemata").write_text("    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
    lines: list[str] = []
    own.reconcile(in_force(NodeSloSpec()), NODE, [pod_cgroups("LS", resctrl=OWN)])
    lines.append((group / "schemata").read_text())
    assert lines == ["MB:0=40;1=40;\n"]  # the L3 line was written before it, a line a write
    assert (group / "tasks").read_text() == "42"
    for file in group.iterdir():
        file.unlink()  # the kernel's own files do not keep a group from being removed
    for seconds, there in ((0, True), (9, True), (10, False)):
        now[0] = seconds * 10**9
        own.reconcile(in_force(NodeSloSpec()), NODE, [])
        assert group.exists() is there


def test_a_share_is_computed_cache_by_cache() -> None:
    found = resctrl.of_pod(OWN, "7ff", (0, 1), "GenuineIntel")
    assert found.masks((0, 1)) == {0: 0x3F, 1: 0x3C}
    assert found.bandwidths((0, 1)) == {0: 40, 1: 40}
    assert resctrl.schemata_lines("L3", {1: "3c", 0: "3f"}) == "L3:0=3f;1=3c;\n"
    assert resctrl.of_pod("{}", "7ff", (0,), "GenuineIntel").masks((0,)) == {}


@pytest.mark.parametrize(("text", "why"), [("[]", "Expected"), (OWN.replace('"cacheID":1', '"cacheID":7'), "cache 7")])
def test_an_impossible_share_is_logged(text: str, why: str) -> None:
    with pytest.raises(resctrl.BadShare, match=why):
        resctrl.of_pod(text, "7ff", (0, 1), "GenuineIntel")


def test_terways_files_exist_while_the_policy_is_set(files: NonCgroupReconciler, tmp_path: Path) -> None:
    terway = made(tmp_path, feature_gates.parse("TerwayQoS=true"))
    qos = ResourceQos(policies=QosPolicies(net_qos_policy="terway-qos"))
    spec = NodeSloSpec(resource_qos_strategy=qos, system_strategy=SystemStrategy(total_network_bandwidth="10G"))
    terway.reconcile(in_force(spec), NODE, [pod_cgroups("LS")])
    assert (tmp_path / "terway/global_bps_config").read_text().startswith("hw_tx_bps_max 1250000000\n")
    terway.reconcile(in_force(NodeSloSpec()), NODE, [])
    assert not list((tmp_path / "terway").iterdir())
