"""Invalid annotations of pods and nodes do not stop a cycle of strategies for the others."""

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kube.pod import Pod
from tests.support.hypothesis_examples import examples
from tests.unit.node_agent.qos_manager.managed_node import BATCH, BE, CID, WEB, ManagedNode

NAMES = (
    "scheduling.koordinator.sh/resource-status", "koordinator.sh/cpuQOS", "koordinator.sh/memoryQOS", "koordinator.sh/cpuBurst",
    "koordinator.sh/blkioQOS", "koordinator.sh/eviction-policy", "koordinator.sh/eviction-priority", "koordinator.sh/oom-score-adj",
    "koordinator.sh/oom-score-adj-spec", "node.koordinator.sh/extended-resource-spec", "koordinator.sh/networkQOS",
    "node.koordinator.sh/resctrl", "koordinator.sh/core-sched-policy",
)  # fmt: skip
TOPOLOGY = (
    "node.koordinator.sh/reservation", "node.koordinator.sh/system-qos-resource", "node.koordinator.sh/cpu-shared-pools",
    "kubelet.koordinator.sh/cpu-manager-policy",
)  # fmt: skip
FIELDS = st.sampled_from(
    ["cpuset", "numaNodeResources", "enable", "policy", "blocks", "ioCfg", "containers", "cpuBurstPercent", "node"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=6,
)
DEEP = ["[" * 20_000, '{"x":' + "[" * 20_000 + "]" * 20_000 + "}"]
TEXTS = VALUES.map(lambda value: msgspec.json.encode(value).decode()) | st.text(max_size=6) | st.sampled_from(DEEP)
GATES = "CgroupReconcile=true,BlkIOReconcile=true,OOMScoreAdj=true,CPUNormalization=true,BECPUEvict=true,CPUEvict=true,BEMemoryEvict=true"
GATES += ",TerwayQoS=true,Resctrl=true,CoreSched=true"
POLICIES = {"netQOSPolicy": "terway-qos"}
SPEC = {
    "resourceUsedThresholdWithBE": {"enable": True},
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {
        "lsClass": {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}},
        "policies": POLICIES,
    },
    "systemStrategy": {"totalNetworkBandwidth": "10G"},
}


def stating(pod: Pod, annotations: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(st.sampled_from(NAMES), TEXTS, max_size=4),
    st.dictionaries(st.sampled_from(TOPOLOGY), TEXTS, max_size=3),
)
def test_a_cycle_goes_on(annotations: dict[str, str], topology: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = ManagedNode(Path(folder), 1, GATES)
        groups = Path(folder) / "sys/fs/resctrl"
        (groups / "info/L3").mkdir(parents=True)
        (groups / "info/L3/cbm_mask").write_text("7ff\n")
        (groups / "schemata").write_text("L3:0=7ff\n")
        machine.slo(**SPEC)
        machine.pods(BATCH, stating(WEB, annotations), topology=topology)
        machine.run_cycle(node=3.0, ls=1.0, be=1.0)
        machine.run_cycle(node=3.0, ls=1.0, be=1.0)
        assert machine.files.text("cpu.shares", f"{BE}/{CID['be']}") == "2048"
        machine.qos_manager.release()
