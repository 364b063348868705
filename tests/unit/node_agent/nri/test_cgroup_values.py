"""Values of cgroups that containers have before they start, from requests of a runtime."""

import json
from typing import Any

import pytest

from services.node_agent.nri import messages
from services.node_agent.nri.hooked_requests import NodeCgroups
from services.node_agent.nri.plugin import NriPlugin
from services.node_agent.runtime_hooks.batch_resource import BatchRule
from services.node_agent.runtime_hooks.cgroup_hooks import CGROUP_HOOKS, as_hook
from services.node_agent.runtime_hooks.container_hooks import Adjustment, ContainerContext, HookFailed
from services.node_agent.runtime_hooks.cpu_normalization import Normalization
from services.node_agent.runtime_hooks.cpuset import CpuRule
from services.node_agent.runtime_hooks.group_identity import Identities
from services.node_agent.runtime_hooks.hook_records import START_ONLY, HookRecords
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.runtime_hooks.hook_stages import BadStages, disabled_stages
from services.node_agent.runtime_hooks.hook_values import HookValues
from shared.agents.actions import ContainerHooks
from shared.kube.pod import Pod
from shared.kube.slo_config import CpuQos, QosClass, ResourceQos
from tests.support.pods import kept_pod

GIB = 2**30
BE = {"koordinator.sh/qosClass": "BE"}
SPEC = "node.koordinator.sh/extended-resource-spec"
STATUS = "scheduling.koordinator.sh/resource-status"
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
ANNOTATED = {SPEC: json.dumps({"containers": {"main": {"requests": BATCH, "limits": BATCH}}})}
RULES = HookRules(frozenset(CGROUP_HOOKS), batch=BatchRule(quota=True), online=frozenset(range(8)))
IN_PLACE = {
    "cpu": {"shares": {"value": 512}, "quota": {"value": 50_000}},
    "memory": {"limit": {"value": GIB}},
}
BURSTABLE = "/kubepods/burstable/podu1"


class Node:
    """The node's side: pods, rules and the values written for new pods."""

    def __init__(
        self, rules: HookRules = RULES, *known: Pod, fail: bool = False, disabled: str = "", v1: bool = False
    ) -> None:
        self.written: list[tuple[str, str, HookValues]] = []
        self.identities: list[tuple[str, str, str, int]] = []
        self.records = HookRecords(None, 0)
        pods = {pod.metadata.uid: pod for pod in known}

        def write(uid: str, kube_qos: str, values: HookValues) -> bool:
            self.written.append((uid, kube_qos, values))
            return True

        def identity(*found: Any) -> None:
            self.identities.append(found)

        self.plugin = NriPlugin(
            {name: as_hook(name, lambda: rules, lambda: True) for name in CGROUP_HOOKS if name in rules.gates},
            lambda _: None,
            NodeCgroups(pods.get, lambda: rules, write, write_identity=lambda: identity if v1 else None),
            stop_at_failure=fail,
            records=self.records,
            disabled=disabled_stages(disabled),
        )

    def call(self, method: str, request: Any, response: Any) -> Any:
        return response.FromString(self.plugin.answer(messages.PLUGIN, method, request.SerializeToString()))

    def run(self, pod: Any) -> None:
        self.call("RunPodSandbox", messages.RunPodSandboxRequest(pod=pod), messages.Empty)

    def create(self, pod: Any, container: Any) -> Any:
        request = messages.CreateContainerRequest(pod=pod, container=container)
        return self.call("CreateContainer", request, messages.CreateContainerResponse).adjust.linux

    def update(self, pod: Any, container: Any, resources: Any) -> list[Any]:
        request = messages.UpdateContainerRequest(pod=pod, container=container, linux_resources=resources)
        return list(self.call("UpdateContainer", request, messages.UpdateContainerResponse).update)

    def synchronize(self, pods: list[Any], *containers: Any, more: bool = False) -> list[Any]:
        request = messages.SynchronizeRequest(pods=pods, containers=containers, more=more)
        found = self.call("Synchronize", request, messages.SynchronizeResponse)
        assert found.more is more
        return list(found.update)


def sandbox(labels: dict[str, str], annotations: dict[str, str], parent: str = "/kubepods/besteffort/podu1") -> Any:
    return {
        "id": "s1", "name": "p", "namespace": "d", "uid": "u1", "labels": labels, "annotations": annotations,
        "linux": {"cgroup_parent": parent},
    }  # fmt: skip


def container(cid: str = "c1", **linux: Any) -> dict[str, Any]:
    return {"id": cid, "pod_sandbox_id": "s1", "name": "main", "linux": {"resources": linux}}


def limits(resources: Any) -> tuple[int, int, int]:
    return resources.cpu.shares.value, resources.cpu.quota.value, resources.memory.limit.value


def test_a_batch_pod_that_the_agent_does_not_know_yet_starts_with_the_values_of_its_annotation() -> None:
    node, pod = Node(), sandbox(BE, ANNOTATED)
    node.run(pod)
    assert node.written == [("u1", "BestEffort", HookValues(512, 50_000, GIB, bvt=None))]
    made = node.create(pod, container())
    assert limits(made.resources) == (512, 50_000, GIB)
    assert not made.resources.unified, "no identity is in force"
    assert node.plugin.applied["BatchResource"] == 1


def test_a_known_pod_counts_as_it_was_received_whatever_the_runtime_has() -> None:
    small = dict.fromkeys(BATCH, "250") | {"kubernetes.io/batch-memory": "1Gi"}
    node = Node(RULES, kept_pod("p", namespace="d", uid="u1", labels=BE, requests=small, limits=small))
    made = node.create(sandbox({}, ANNOTATED), container() | {"name": "c"})
    assert limits(made.resources) == (256, 25_000, GIB)


def test_older_runtimes_report_a_new_pod_by_a_change_of_state() -> None:
    node = Node()
    for event in (2, messages.RUN_POD_SANDBOX):
        node.call("StateChange", messages.StateChangeEvent(event=event, pod=sandbox(BE, ANNOTATED)), messages.Empty)
    assert len(node.written) == 1


def test_a_pod_with_cpus_of_its_own_starts_on_them_without_a_quota() -> None:
    labels, annotations = {"koordinator.sh/qosClass": "LSR"}, {STATUS: '{"cpuset":"2-3"}'}
    pod = sandbox(labels, annotations, "/kubepods/podu1")
    node = Node(RULES, kept_pod("p", namespace="d", uid="u1", labels=labels, annotations=annotations))
    node.run(pod)
    assert node.written == [("u1", "Guaranteed", HookValues(quota_us=-1))]
    made = node.create(pod, container(cpu={"quota": {"value": 200_000}}))
    assert (made.resources.cpu.cpus, made.resources.cpu.quota.value) == ("2-3", -1)
    assert not made.resources.HasField("memory")


def test_a_pod_with_cpus_of_its_own_keeps_its_quota_where_the_settings_say_so() -> None:
    labels, annotations = {"koordinator.sh/qosClass": "LSR"}, {STATUS: '{"cpuset":"2-3"}'}
    pod = sandbox(labels, annotations, "/kubepods/podu1")
    known = kept_pod("p", namespace="d", uid="u1", labels=labels, annotations=annotations)
    node = Node(RULES._replace(keep_quota=True), known)
    node.run(pod)
    assert node.written == []
    made = node.create(pod, container(cpu={"quota": {"value": 200_000}}))
    assert made.resources.cpu.cpus == "2-3"
    assert not made.resources.cpu.HasField("quota")


def test_a_pod_that_the_agent_does_not_know_yet_keeps_its_quota_on_the_cpus_that_its_annotation_claims() -> None:
    made = Node().create(sandbox({}, {STATUS: '{"cpuset":"2-3"}'}, BURSTABLE), container())
    assert made.resources.cpu.cpus == "2-3"
    assert not made.resources.cpu.HasField("quota"), "its owner may have written the annotation"


@pytest.mark.parametrize("cpus", ["6-9", "two"])
def test_cpus_that_the_node_does_not_have_are_left_out_and_with_the_policy_fail_refuse_the_container(cpus: str) -> None:
    pod = sandbox({"koordinator.sh/qosClass": "LSE"}, {STATUS: json.dumps({"cpuset": cpus})}, BURSTABLE)
    node = Node()
    assert not node.create(pod, container()).resources.HasField("cpu")
    assert node.plugin.failed == 1
    with pytest.raises(HookFailed, match=f"hook CPUSetAllocator for container main of pod d/p: CPUs '{cpus}'"):
        Node(fail=True).create(pod, container())
    known = kept_pod("p", namespace="d", uid="u1", annotations={STATUS: json.dumps({"cpuset": cpus})})
    with pytest.raises(HookFailed, match="hook CPUSetAllocator for pod d/p: "):
        Node(RULES, known, fail=True).run(pod)


def test_the_kubelets_quota_is_scaled_on_a_faster_node_when_it_is_created_and_when_it_is_updated() -> None:
    node = Node(RULES._replace(normalization=Normalization(enabled=True, ratio=1.25)))
    pod = sandbox({"koordinator.sh/qosClass": "LS"}, {}, BURSTABLE)
    quota = {"quota": {"value": 100_000}}
    assert node.create(pod, container(cpu=quota)).resources.cpu.quota.value == 80_000
    (update,) = node.update(pod, container(), {"cpu": {"quota": {"value": 200_000}}})
    assert (update.container_id, update.linux.resources.cpu.quota.value) == ("c1", 160_000)
    assert node.synchronize([pod], container(cpu={"quota": {"value": 80_000}})) == [], "it may be scaled already"


def test_an_update_by_the_kubelet_keeps_the_values_of_the_hooks() -> None:
    node, pod = Node(), sandbox(BE, ANNOTATED)
    (update,) = node.update(pod, container(), {"cpu": {"shares": {"value": 2}}})
    assert limits(update.linux.resources) == (512, 50_000, GIB)
    assert node.update(sandbox({}, {}), container(), {"cpu": {"shares": {"value": 2}}}) == []


def test_a_score_and_an_identity_are_set_where_the_runtime_can() -> None:
    strategy = ResourceQos(be_class=QosClass(cpu_qos=CpuQos(enable=True, group_identity=-1)))
    node = Node(RULES._replace(identities=Identities.of(strategy)))
    pod = sandbox(BE, {"koordinator.sh/oom-score-adj": "900"})
    made = node.create(pod, container())
    assert made.oom_score_adj.value == 900
    assert dict(made.resources.unified) == {"cpu.bvt_warp_ns": "-1"}
    node.run(pod)
    assert node.written[0][2] == HookValues(bvt=-1)


def test_the_share_pools_are_the_cpus_of_a_latency_sensitive_container() -> None:
    rule = CpuRule({0: "0-3"}, {}, "", static=False)
    made = Node(RULES._replace(cpus=rule)).create(
        sandbox({"koordinator.sh/qosClass": "LS"}, {}, BURSTABLE), container()
    )
    assert made.resources.cpu.cpus == "0-3"


def test_a_limit_of_memory_with_swap_takes_it_along() -> None:
    memory = {"limit": {"value": GIB // 2}, "swap": {"value": GIB // 2}}
    made = Node().create(sandbox(BE, ANNOTATED), container(memory=memory))
    assert (made.resources.memory.limit.value, made.resources.memory.swap.value) == (GIB, GIB)


def test_containers_that_started_without_the_agent_are_repaired_and_those_with_their_values_are_left() -> None:
    node = Node()
    right = {"cpu": {"shares": {"value": 512}, "quota": {"value": 50_000}}, "memory": {"limit": {"value": GIB}}}
    assert node.synchronize([sandbox(BE, ANNOTATED)], container("c1"), more=True) == [], "only the last part has any"
    updates = node.synchronize([], container("c2", **right), container("c3") | {"pod_sandbox_id": "gone"})
    assert [each.container_id for each in updates] == ["c1"]
    assert limits(updates[0].linux.resources) == (512, 50_000, GIB)
    assert updates[0].ignore_failure
    assert node.plugin.repaired == 1
    assert node.synchronize([]) == []


def test_a_disabled_stage_has_no_event() -> None:
    def events(text: str) -> int:
        return Node(disabled=text).plugin.events

    assert events("") == 1 | 8 | 128
    assert events("PreRunPodSandbox, PreUpdateContainerResources") == 8
    assert events("PreCreateContainer,PostStopContainer") == 1 | 128
    with pytest.raises(BadStages, match="'PreCreate' is no stage; give PreRunPodSandbox"):
        events("PreCreate")
    node = Node(disabled="PreCreateContainer")
    assert node.synchronize([sandbox(BE, ANNOTATED)], container()) == []


def test_amounts_beyond_any_cgroup_are_a_failure_of_the_hook() -> None:
    amounts = {"kubernetes.io/batch-cpu": "1E", "kubernetes.io/batch-memory": "1Gi"}
    pod = sandbox(BE, {SPEC: json.dumps({"containers": {"main": {"requests": amounts, "limits": amounts}}})})
    node = Node()
    node.run(pod)
    assert not node.create(pod, container()).resources.HasField("cpu")
    assert (node.written, node.plugin.failed) == ([], 2)
    assert node.update(pod, container(), {}) == node.synchronize([pod], container()) == []
    with pytest.raises(HookFailed, match=r"hook BatchResource for container main of pod d/p: .* is beyond any cgroup"):
        Node(fail=True).create(pod, container())


def test_a_gate_that_is_off_sets_nothing() -> None:
    node = Node(RULES._replace(gates=frozenset({"CPUSetAllocator"})))
    node.run(sandbox(BE, ANNOTATED))
    assert node.written == []
    assert not node.create(sandbox(BE, ANNOTATED), container()).HasField("resources")


def records_of(node: Node) -> list[ContainerHooks]:
    return [each for report in node.records.reports(1) for each in report.containers]


def test_a_created_container_is_recorded_with_its_hooks_and_those_that_failed() -> None:
    node = Node()
    node.create(sandbox(BE, ANNOTATED), container("c1"))
    claimed = BE | {"koordinator.sh/qosClass": "LSE"}
    node.create(sandbox(claimed, ANNOTATED | {STATUS: '{"cpuset":"6-9"}'}), container("c2"))
    node.create(sandbox({}, {}), container("c3"))
    batch, failed, plain = records_of(node)
    assert (batch.container_id, batch.pod, batch.pod_uid, batch.container) == ("c1", "d/p", "u1", "main")
    assert (batch.state, batch.route, batch.hooks, batch.failed) == ("applied", "nri", ("BatchResource",), {})
    assert (failed.state, failed.hooks) == ("notApplied", ())
    assert failed.failed == {"CPUSetAllocator": "CPUs '6-9': the node does not have all of them"}
    assert (plain.state, plain.hooks) == ("applied", ())


def test_a_container_that_started_without_the_agent_is_expected_to_be_repaired() -> None:
    node, pod = Node(), sandbox(BE, ANNOTATED)
    node.synchronize([pod], container("c1") | {"started_at": 5}, container("c2", **IN_PLACE))
    assert [(each.container_id, each.state) for each in records_of(node)] == [("c1", "notApplied"), ("c2", "applied")]
    expected = node.records.expected["c1"]
    assert (expected.record.route, expected.record.hooks, expected.started_ns) == ("nri", ("BatchResource",), 5)
    assert expected.values == HookValues(512, 50_000, GIB)
    assert {"c1", "c2"} == node.records.provisional, "the agent has not received the pod"


def test_devices_that_a_container_lacks_are_never_repaired() -> None:
    def gpu(_: ContainerContext) -> Adjustment:
        return Adjustment(env={"NVIDIA_VISIBLE_DEVICES": "3"})

    records = HookRecords(None, 0)
    plugin = NriPlugin({"GPUEnvInject": gpu}, lambda _: None, stop_at_failure=False, records=records)
    containers = [container("with") | {"env": ["A=b", "NVIDIA_VISIBLE_DEVICES=3"]}, container("without")]
    request = messages.SynchronizeRequest(pods=[sandbox({}, {})], containers=containers)
    plugin.answer(messages.PLUGIN, "Synchronize", request.SerializeToString())
    has, lacks = (each for report in records.reports(1) for each in report.containers)
    assert (has.container_id, has.state, has.hooks) == ("with", "applied", ("GPUEnvInject",))
    assert (lacks.container_id, lacks.state, lacks.failed) == ("without", "notApplied", {"GPUEnvInject": START_ONLY})


def test_the_identity_of_a_container_in_v1_is_written_between_its_creation_and_its_start() -> None:
    enabled = RULES._replace(identities=Identities.of(ResourceQos(be_class=QosClass(cpu_qos=CpuQos(enable=True)))))
    pod, event = sandbox(BE, {}), messages.StateChangeEvent
    for rules, v1, written in (
        (enabled, True, [("u1", "BestEffort", "c1", -1)]),
        (enabled, False, []),
        (RULES, True, []),
    ):
        node = Node(rules, v1=v1)
        assert bool(node.plugin.events & messages.START_CONTAINER_EVENT) is v1
        node.call("StateChange", event(event=messages.START_CONTAINER, pod=pod, container=container()), messages.Empty)
        assert node.identities == written
