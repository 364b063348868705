"""Answers of the agent to a runtime proxy: the values of the hooks, in requests that they otherwise copy."""

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.hook_server.hook_answers import HookAnswers
from services.node_agent.hook_server.hook_server import REGISTRATION, HookServer
from services.node_agent.nri.hooked_requests import BadRequest, NodeCgroups
from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from services.node_agent.runtime_hooks.batch_resource import BatchRule
from services.node_agent.runtime_hooks.cgroup_hooks import CGROUP_HOOKS, as_hook
from services.node_agent.runtime_hooks.container_hooks import (
    Adjustment,
    BindMount,
    ContainerContext,
    HookFailed,
)
from services.node_agent.runtime_hooks.cpu_normalization import Normalization
from services.node_agent.runtime_hooks.hook_records import START_ONLY, Expected, HookRecords
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.runtime_hooks.hook_values import HookValues
from shared.agents.actions import ContainerHooks
from shared.kube.instants import SECOND
from shared.kube.pod import Pod
from shared.runtime.task_cancellation import cancel_and_wait
from shared.runtime_hooks.messages import (
    ContainerResourceHookRequest,
    ContainerResourceHookResponse,
    LinuxContainerResources,
    PodSandboxHookRequest,
    PodSandboxHookResponse,
    method_of,
)
from shared.runtime_hooks.registration import Registration, read_registration
from shared.runtime_hooks.stages import (
    AFTER_START_CONTAINER,
    CREATE_CONTAINER,
    RUN_POD_SANDBOX,
    START_CONTAINER,
    UPDATE_CONTAINER,
)
from tests.support.pods import kept_pod
from tests.support.waiting import until

GIB = 2**30
CID = "c" * 64
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
ANNOTATIONS = {
    "node.koordinator.sh/extended-resource-spec": json.dumps(
        {"containers": {"main": {"requests": BATCH, "limits": BATCH}}}
    )
}
META = {"name": "p", "namespace": "d", "uid": "u1"}
BE = {"koordinator.sh/qosClass": "BE"}
PARENT = "/kubepods/besteffort/podu1"
RULES = HookRules(frozenset(CGROUP_HOOKS), batch=BatchRule(quota=True), online=frozenset(range(8)))


class Node:
    """The node's side: pods, rules and the values written for new pods."""

    def __init__(
        self, rules: HookRules = RULES, *known: Pod, fail: bool = False, folder: Path | None = None, **hooks: Any
    ) -> None:
        self.written: list[tuple[str, str, HookValues]] = []
        pods = {pod.metadata.uid: pod for pod in known}

        def write(uid: str, kube_qos: str, values: HookValues) -> bool:
            self.written.append((uid, kube_qos, values))
            return True

        own = {name: as_hook(name, lambda: rules, lambda: True) for name in CGROUP_HOOKS}
        cgroups = NodeCgroups(pods.get, lambda: rules, write)
        self.records = HookRecords(folder, 0)
        self.records.load()
        self.answers = HookAnswers(
            {**own, **hooks}, lambda _: None, cgroups, records=self.records, stop_at_failure=fail
        )

    def run(self, **request: Any) -> Any:
        data = PodSandboxHookRequest(pod_meta=META, cgroup_parent=PARENT, **request).SerializeToString()
        return PodSandboxHookResponse.FromString(self.answers.answer(RUN_POD_SANDBOX, data))

    def container(self, stage: str, resources: Any = None, **request: Any) -> Any:
        request = {"pod_labels": BE, "pod_annotations": ANNOTATIONS, **request}
        data = ContainerResourceHookRequest(
            pod_meta=META,
            container_meta=request.pop("container_meta", {"name": "main"}),
            container_resources=resources or {},
            pod_cgroup_parent=PARENT,
            container_envs={"A": "1"},
            container_annotations={"n": "1"},
            **request,
        ).SerializeToString()
        return ContainerResourceHookResponse.FromString(self.answers.answer(stage, data))


def test_a_batch_container_gets_its_values_and_the_rest_of_its_request() -> None:
    for stage in (CREATE_CONTAINER, UPDATE_CONTAINER):
        answer = Node().container(stage, {"cpu_shares": 2, "oom_score_adj": 1000, "cpuset_mems": "0"})
        assert answer.container_resources == LinuxContainerResources(
            cpu_shares=512, cpu_quota=50_000, memory_limit_in_bytes=GIB, oom_score_adj=1000, cpuset_mems="0"
        )
        assert (dict(answer.container_envs), dict(answer.container_annotations)) == ({"A": "1"}, {"n": "1"})
        assert answer.pod_cgroup_parent == PARENT


def test_a_limit_with_swap_on_it_keeps_to_the_new_one_of_memory() -> None:
    answer = Node().container(CREATE_CONTAINER, {"memory_swap_limit_in_bytes": 9 * GIB})
    assert answer.container_resources.memory_swap_limit_in_bytes == GIB


def test_a_new_pods_cgroup_is_written_and_its_values_are_in_the_answer() -> None:
    node = Node()
    answer = node.run(labels=BE, annotations=ANNOTATIONS)
    assert node.written == [("u1", "BestEffort", HookValues(512, 50_000, GIB))]
    assert answer.resources == LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, memory_limit_in_bytes=GIB)
    assert (dict(answer.labels), dict(answer.annotations), answer.cgroup_parent) == (BE, ANNOTATIONS, PARENT)


def test_a_pod_without_hooks_gets_a_copy_of_its_request() -> None:
    node = Node()
    node.run()
    assert not node.written
    answer = node.container(CREATE_CONTAINER, {"cpu_quota": 7}, pod_labels={}, pod_annotations={})
    assert answer.container_resources == LinuxContainerResources(cpu_quota=7)


def test_a_quota_is_normalized_once_however_often_it_is_updated() -> None:
    rules = RULES._replace(normalization=Normalization(enabled=True, ratio=1.25))
    known = kept_pod("p", uid="u1", namespace="d", limits={"cpu": "1"}, labels={"koordinator.sh/qosClass": "LS"})
    node = Node(rules, known)
    quota = 100_000
    for stage in (CREATE_CONTAINER, UPDATE_CONTAINER, UPDATE_CONTAINER):
        quota = node.container(stage, {"cpu_quota": quota}, pod_annotations={}).container_resources.cpu_quota
        assert quota == 80_000


def test_variables_are_added_and_mounts_are_named_as_missing(caplog: pytest.LogCaptureFixture) -> None:
    def gpu(_: ContainerContext) -> Adjustment:
        return Adjustment({"NVIDIA_VISIBLE_DEVICES": "0"}, (BindMount("/lib.so", "/lib.so"),))

    answer = Node(GPU=gpu).container(CREATE_CONTAINER)
    assert dict(answer.container_envs) == {"A": "1", "NVIDIA_VISIBLE_DEVICES": "0"}
    assert "cannot add /lib.so; use NRI" in str([getattr(each, "why", "") for each in caplog.records])
    with pytest.raises(HookFailed, match=r"cannot add /lib.so"):
        Node(fail=True, GPU=gpu).container(CREATE_CONTAINER)


def test_a_container_lacks_the_hooks_at_its_creation_for_which_there_was_no_answer() -> None:
    def gpu(context: ContainerContext) -> Adjustment:
        return Adjustment({"NVIDIA_VISIBLE_DEVICES": "0"})

    def rdma(context: ContainerContext) -> Adjustment:
        raise HookFailed("RDMA", context, "no card")

    node = Node(GPU=gpu, RDMA=rdma)
    seen = PodCgroups("", {}, NodePod(kept_pod("p", uid="u1", namespace="d"), {}, frozenset()))
    missing = partial(node.answers.missing, lambda *_: {"GPU": START_ONLY, "RDMA": START_ONLY}, seen)
    assert missing("main") == {"GPU": START_ONLY, "RDMA": START_ONLY}
    node.container(CREATE_CONTAINER)
    assert missing("main") == {"RDMA": "no card"}
    assert missing("other") == {"GPU": START_ONLY, "RDMA": START_ONLY}


def recorded(node: Node) -> list[ContainerHooks]:
    return [each for report in node.records.reports(0) for each in report.containers]


def test_a_container_is_recorded_with_its_route_once_it_has_started(tmp_path: Path) -> None:
    node = Node(folder=tmp_path)
    before_ns = time.time_ns()
    node.container(CREATE_CONTAINER)
    assert not recorded(node), "it has no id yet"
    node.container(AFTER_START_CONTAINER, container_meta={"name": "main", "id": CID})
    (found,) = recorded(node)
    assert before_ns <= found.at_ns <= time.time_ns()
    assert found == ContainerHooks(
        CID, "u1", "d/p", "main", "applied", found.at_ns, route="proxy", hooks=("BatchResource",)
    )
    assert node.records.provisional == {CID}, "its pod is not received yet"
    again = HookRecords(tmp_path, 0)
    again.load()
    assert CID in again, "a run that is killed right after it knows it"


def test_a_container_that_lacks_a_hook_is_recorded_as_one_without_it() -> None:
    def failing(context: ContainerContext) -> Adjustment:
        raise HookFailed("AAA", context, "no reason")

    node = Node(RULES, kept_pod("p", uid="u1", namespace="d"), AAA=failing)
    node.container(CREATE_CONTAINER)
    node.container(AFTER_START_CONTAINER, container_meta={"name": "main", "id": CID})
    (found,) = recorded(node)
    assert (found.state, found.route, found.failed) == ("notApplied", "proxy", {"AAA": "no reason"})
    assert not node.records.provisional


@pytest.mark.parametrize(
    "meta", [{"name": "other", "id": CID}, {"name": "main", "id": CID, "attempt": 1}, {"name": "main", "id": "../x"}]
)
def test_a_start_without_an_answer_of_this_run_is_not_recorded(meta: dict[str, Any]) -> None:
    node = Node()
    node.container(CREATE_CONTAINER)
    answer = node.container(AFTER_START_CONTAINER, container_meta=meta)
    assert dict(answer.container_annotations) == {"n": "1"}
    assert not recorded(node)


def test_a_container_that_is_being_repaired_is_left_to_the_reconciler() -> None:
    node = Node()
    node.container(CREATE_CONTAINER)
    record = ContainerHooks(CID, "u1", "d/p", "main", "applied", SECOND, route="reconciler")
    node.records.expect(Expected(record, HookValues(), lambda: ""))
    node.container(AFTER_START_CONTAINER, container_meta={"name": "main", "id": CID})
    assert [each.state for each in recorded(node)] == ["notApplied"]


def test_a_container_whose_values_are_in_place_has_the_proxys_route_where_this_run_answered_for_it() -> None:
    node = Node()
    seen = PodCgroups("", {}, NodePod(kept_pod("p", uid="u1", namespace="d"), {}, frozenset()))
    assert node.answers.route(seen, "main") == ""
    node.container(CREATE_CONTAINER)
    assert node.answers.route(seen, "main") == "proxy"


def test_a_hook_that_fails_is_skipped_or_refuses_by_the_policy() -> None:
    def failing(context: ContainerContext) -> Adjustment:
        raise HookFailed("AAA", context, "no reason")

    node = Node(AAA=failing)
    assert node.container(CREATE_CONTAINER).container_resources.cpu_shares == 512
    assert node.answers.failed == 1
    with pytest.raises(HookFailed, match="hook AAA for container main of pod d/p: no reason"):
        Node(fail=True, AAA=failing).container(CREATE_CONTAINER)


def test_a_request_that_cannot_be_decoded_is_refused() -> None:
    with pytest.raises(BadRequest, match="the request of PreCreateContainer cannot be decoded"):
        Node().answers.answer(CREATE_CONTAINER, b"\xff")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="koord-") as made:  # short: that of a socket has at most 107 bytes
        yield Path(made)


async def test_the_server_registers_and_answers(folder: Path) -> None:
    socket, file = folder / "run" / "k.sock", folder / "registered" / REGISTRATION
    answers = Node(fail=True).answers
    registration = Registration(remote_endpoint=str(socket), runtime_hooks=answers.stages)
    serving = asyncio.create_task(HookServer(socket, file.parent, registration, answers).run())
    await until(lambda: asyncio.sleep(0, file.exists()), "registration")
    read = read_registration("f", file.read_bytes())
    assert read.runtime_hooks == (
        "PostStartContainer",
        "PreCreateContainer",
        "PreRunPodSandbox",
        "PreUpdateContainerResources",
    )
    assert read.remote_endpoint == str(socket)
    async with grpc.aio.insecure_channel(f"unix:{socket}") as client:
        assert await client.unary_unary(method_of(CREATE_CONTAINER))(b"") == b""  # nothing but what the request has
        for method, data, code in (
            (method_of(START_CONTAINER), b"", grpc.StatusCode.UNIMPLEMENTED),
            (method_of(CREATE_CONTAINER), b"\xff", grpc.StatusCode.FAILED_PRECONDITION),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await client.unary_unary(method)(data)
            assert failed.value.code() is code
    await cancel_and_wait(serving)
    assert file.exists()  # its policy decides while no agent runs
