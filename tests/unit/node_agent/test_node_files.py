"""Kernel settings, resctrl groups and OOM scores, on files laid out as the kernel's; E24 of spec/node-agent.md 8."""

from pathlib import Path

import pytest

from services.node_agent import features
from services.node_agent.layout import Placed
from services.node_agent.node_files import NodeFiles
from services.node_agent.qos import system_config
from services.node_agent.qos.pods import NodePod
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Container, Pod, PodSpec, PodStatus
from shared.kube.slo_config import QosClass, ResctrlQos, ResourceQos, SystemStrategy

NODE = Node(metadata=Metadata(name="n"), status=NodeStatus(capacity={"memory": "64Gi"}))
GATES = features.parse("SystemConfig=true,OOMScoreAdj=true")
FOLDER = "kubepods/podx/c1"


@pytest.fixture
def files(tmp_path: Path) -> NodeFiles:
    for name in ("proc/sys/vm", "proc/42", "sys/fs/resctrl/info/L3", f"cgroup/cpu/{FOLDER}"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/sys/vm/min_free_kbytes").write_text("67584\n")
    (tmp_path / "proc/42/oom_score_adj").write_text("0\n")
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\nvendor_id\t: GenuineIntel\n")
    (tmp_path / "sys/fs/resctrl/info/L3/cbm_mask").write_text("7ff\n")
    (tmp_path / "sys/fs/resctrl/schemata").write_text("    L3:0=7ff;1=7ff\n    MB:0=100;1=100\n")
    for file in ("tasks", "cgroup.procs"):
        (tmp_path / f"cgroup/cpu/{FOLDER}/{file}").write_text("42\n")
    return NodeFiles(tmp_path / "proc", tmp_path / "sys", tmp_path / "cgroup", tmp_path / "state")


def placed(qos: str, **annotations: str) -> Placed:
    named = {f"koordinator.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    meta = Metadata(name="p", namespace="d", uid="x", labels={"koordinator.sh/qosClass": qos}, annotations=named)
    pod = Pod(metadata=meta, spec=PodSpec(containers=(Container(name="c"),)), status=PodStatus(phase="Running"))
    return Placed("kubepods/podx", {"1": FOLDER}, NodePod(pod, {"c": "1"}, frozenset({"c"})))


@pytest.mark.parametrize(("factor", "found"), [(100, "671088"), (1, None)])
def test_e24_what_the_kernel_keeps_free(factor: int, found: str | None) -> None:
    wanted = system_config.wanted(SystemStrategy(min_free_kbytes_factor=factor), 64 << 30)
    assert wanted.get("proc/sys/vm/min_free_kbytes") == found


def test_kernel_settings_are_set_and_put_back(files: NodeFiles, tmp_path: Path) -> None:
    spec = in_force(NodeSloSpec(system_strategy=SystemStrategy(min_free_kbytes_factor=100, watermark_scale_factor=150)))
    files.round(spec, NODE, [], GATES)
    file = tmp_path / "proc/sys/vm/min_free_kbytes"
    assert file.read_text() == "671088"
    assert not (tmp_path / "proc/sys/vm/watermark_scale_factor").exists()
    files.release()
    assert file.read_text() == "67584"


def test_classes_share_the_cache_as_the_node_says(files: NodeFiles, tmp_path: Path) -> None:
    be = QosClass(resctrl_qos=ResctrlQos(enable=True, cat_range_end_percent=30))
    spec = in_force(NodeSloSpec(resource_qos_strategy=ResourceQos(be_class=be)))
    files.round(spec, NODE, [placed("BE")], GATES)
    assert (tmp_path / "sys/fs/resctrl/BE/schemata").read_text() == "L3:0=f;1=f;\n"
    assert (tmp_path / "sys/fs/resctrl/BE/tasks").read_text() == "42"


def test_processes_get_the_score_that_their_pod_states(files: NodeFiles, tmp_path: Path) -> None:
    files.round(in_force(NodeSloSpec()), NODE, [placed("LS", oom_score_adj="-500")], GATES)
    assert (tmp_path / "proc/42/oom_score_adj").read_text() == "-500"


def test_what_is_off_is_left_alone(files: NodeFiles, tmp_path: Path) -> None:
    spec = in_force(NodeSloSpec(system_strategy=SystemStrategy(min_free_kbytes_factor=100)))
    files.round(spec, NODE, [placed("LS", oom_score_adj="-500")], features.parse(""))
    assert (tmp_path / "proc/sys/vm/min_free_kbytes").read_text() == "67584\n"
    assert (tmp_path / "proc/42/oom_score_adj").read_text() == "0\n"
    assert not (tmp_path / "sys/fs/resctrl/BE").exists()
