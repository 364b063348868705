"""Hook answers in requests of the kubelet: the rules of spec/node-agent.md 5.6."""

from typing import Any

import pytest

from services.runtime_proxy import cri_messages as cri
from services.runtime_proxy.answer_check import BadAnswer
from services.runtime_proxy.hooked_calls import CALLS, merge_answer
from services.runtime_proxy.known_containers import KnownContainers
from shared.protobuf_schema import message_classes
from shared.runtime_hooks.messages import (
    ContainerResourceHookResponse,
    LinuxContainerResources,
    PodSandboxHookResponse,
)

RUN, CREATE, START, UPDATE, STOP, STOP_POD, REMOVE = (
    CALLS[cri.RUNTIME_SERVICE + name]
    for name in (
        "RunPodSandbox",
        "CreateContainer",
        "StartContainer",
        "UpdateContainerResources",
        "StopContainer",
        "StopPodSandbox",
        "RemoveContainer",
    )
)
SANDBOX = {
    "metadata": {"name": "web", "uid": "u", "namespace": "default"},
    "labels": {"app": "web", "io.kubernetes.pod.uid": "u"},
    "annotations": {"a": "kubelet"},
    "linux": {"cgroup_parent": "/kubepods/podu"},
}
RESOURCES = {
    "cpu_period": 100_000,
    "cpu_quota": 50_000,
    "cpu_shares": 102,
    "memory_limit_in_bytes": 1 << 20,
    "oom_score_adj": 950,
    "cpuset_cpus": "0-1",
    "cpuset_mems": "0",
    "hugepage_limits": [{"page_size": "2MB", "limit": 4}],
    "unified": {"memory.high": "1"},
}


def run_pod(known: KnownContainers, sandbox: str = "s") -> Any:
    request = cri.RunPodSandboxRequest(config=SANDBOX, runtime_handler="runc")
    subject = RUN.subject(known, request)
    RUN.record(known, request, subject, cri.RunPodSandboxResponse(pod_sandbox_id=sandbox).SerializeToString())
    return subject


def create_request(**config: Any) -> Any:
    return cri.CreateContainerRequest(
        pod_sandbox_id="s",
        sandbox_config=SANDBOX,
        config={"metadata": {"name": "main"}, "linux": {"resources": RESOURCES}, **config},
    )


def created(known: KnownContainers, answer: Any, **config: Any) -> Any:
    request = create_request(**config)
    subject = CREATE.subject(known, request)
    merge_answer(subject, answer)
    assert CREATE.write is not None
    CREATE.write(request, subject)
    CREATE.record(known, request, subject, cri.CreateContainerResponse(container_id="c").SerializeToString())
    return request


@pytest.fixture
def known() -> KnownContainers:
    found = KnownContainers()
    run_pod(found)
    return found


def test_an_answer_overlays_labels_and_annotations_of_a_pod_and_its_cgroup_parent() -> None:
    request = cri.RunPodSandboxRequest(config=SANDBOX)
    subject = RUN.subject(KnownContainers(), request)
    answer = PodSandboxHookResponse(
        labels={"new": "1"}, annotations={"a": "hook"}, cgroup_parent="/other", resources={"cpu_shares": 5}
    )
    merge_answer(subject, answer)
    assert RUN.write is not None
    RUN.write(request, subject)
    assert dict(request.config.labels) == {"app": "web", "io.kubernetes.pod.uid": "u", "new": "1"}
    assert dict(request.config.annotations) == {"a": "hook"}
    assert request.config.linux.cgroup_parent == "/other"
    assert subject is not None
    assert not subject.HasField("resources")


def test_an_empty_answer_about_a_pod_changes_nothing() -> None:
    request = cri.RunPodSandboxRequest(config=SANDBOX)
    before = request.SerializeToString(deterministic=True)
    subject = RUN.subject(KnownContainers(), request)
    merge_answer(subject, PodSandboxHookResponse())
    assert RUN.write is not None
    RUN.write(request, subject)
    assert request.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("answer", "changed"),
    [
        ({}, {"oom_score_adj": 0, "cpuset_cpus": "", "cpuset_mems": ""}),
        ({"cpu_quota": -1}, {"cpu_quota": -1}),
        ({"cpu_quota": 0}, {}),
        ({"cpu_shares": 0, "memory_limit_in_bytes": -1, "cpu_period": 0}, {}),
        ({"cpu_shares": 2, "memory_limit_in_bytes": 7, "memory_swap_limit_in_bytes": 9}, {
            "cpu_shares": 2, "memory_limit_in_bytes": 7, "memory_swap_limit_in_bytes": 9,
        }),
        ({"oom_score_adj": 1001}, {"oom_score_adj": 950}),
        ({"oom_score_adj": -1000}, {"oom_score_adj": -1000}),
        ({"cpuset_cpus": "3"}, {"cpuset_cpus": "3"}),
        ({"unified": {"cpu.weight": "5"}}, {"unified": {"memory.high": "1", "cpu.weight": "5"}}),
        ({"hugepage_limits": [{"page_size": "1GB", "limit": 1}]}, {}),
    ],
)  # fmt: skip
def test_resources_of_an_answer(known: KnownContainers, answer: dict[str, Any], changed: dict[str, Any]) -> None:
    request = created(known, ContainerResourceHookResponse(container_resources=LinuxContainerResources(**answer)))
    overwritten: dict[str, Any] = {"oom_score_adj": 0, "cpuset_cpus": "", "cpuset_mems": ""}  # always, spec 5.6
    assert request.config.linux.resources == cri.LinuxContainerResources(**RESOURCES | overwritten | changed)


def test_an_answer_without_resources_leaves_those_of_the_request(known: KnownContainers) -> None:
    request = created(known, ContainerResourceHookResponse(container_annotations={"n": "1"}, pod_cgroup_parent="/p"))
    assert request.config.linux.resources == cri.LinuxContainerResources(**RESOURCES)
    assert dict(request.config.annotations) == {"n": "1"}
    assert request.sandbox_config.linux.cgroup_parent == "/p"


def test_variables_of_an_answer_replace_those_of_a_request_but_keep_its_order(known: KnownContainers) -> None:
    envs = [{"key": key, "value": value} for key, value in (("B", b"1"), ("A", b"2"), ("RAW", b"\xff"), ("C", b"3"))]
    answer = ContainerResourceHookResponse(container_envs={"A": "9", "B": "1", "Z": "8", "Y": "7"})
    request = created(known, answer, envs=envs)
    assert [(each.key, each.value) for each in request.config.envs] == [
        ("B", b"1"), ("A", b"9"), ("RAW", b"\xff"), ("Y", b"7"), ("Z", b"8"),
    ]  # fmt: skip
    request = created(known, ContainerResourceHookResponse(), envs=envs)
    assert [each.key for each in request.config.envs] == ["B", "A", "RAW", "C"]


def test_an_update_is_merged_into_the_recorded_container_and_stays(known: KnownContainers) -> None:
    created(known, ContainerResourceHookResponse(container_annotations={"n": "1"}))

    def update(answer: Any, **linux: Any) -> Any:
        request = cri.UpdateContainerResourcesRequest(container_id="c", linux=linux)
        subject = UPDATE.subject(known, request)
        assert subject is not None
        merge_answer(subject, answer)
        assert UPDATE.write is not None
        UPDATE.write(request, subject)
        UPDATE.record(known, request, subject, b"")
        return request

    request = update(ContainerResourceHookResponse(), cpu_shares=500, oom_score_adj=1, cpuset_cpus="")
    assert request.linux == cri.LinuxContainerResources(**RESOURCES | {"cpu_shares": 500})
    assert dict(request.annotations) == {"n": "1"}
    request = update(ContainerResourceHookResponse(), cpu_quota=-1, cpuset_cpus="1")
    assert request.linux == cri.LinuxContainerResources(
        **RESOURCES | {"cpu_shares": 500, "cpu_quota": -1, "cpuset_cpus": "1"}
    )


def test_an_update_keeps_its_huge_pages_and_the_fields_that_the_proxy_does_not_know(known: KnownContainers) -> None:
    newer = message_classes("newer", {"Resources": {"new": (99, "string")}})["Resources"]
    of_creation, of_update = (newer(new=text).SerializeToString() for text in ("creation", "update"))
    request = create_request()
    request.config.linux.resources.MergeFromString(of_creation)
    subject = CREATE.subject(known, request)
    CREATE.record(known, request, subject, cri.CreateContainerResponse(container_id="c").SerializeToString())
    pages = [{"page_size": "2MB", "limit": 6}, {"page_size": "1GB", "limit": 1}]
    update = cri.UpdateContainerResourcesRequest(container_id="c", linux={"cpu_shares": 5, "hugepage_limits": pages})
    update.linux.MergeFromString(of_update)
    subject = UPDATE.subject(known, update)
    assert subject is not None
    merge_answer(subject, ContainerResourceHookResponse(container_resources={"cpu_quota": -1, "oom_score_adj": 950}))
    assert UPDATE.write is not None
    UPDATE.write(update, subject)
    overwritten = {"cpu_shares": 5, "cpu_quota": -1, "cpuset_cpus": "", "cpuset_mems": "", "hugepage_limits": pages}
    expected = cri.LinuxContainerResources(**RESOURCES | overwritten)
    expected.MergeFromString(of_update)
    assert update.linux.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


def test_an_update_that_the_runtime_refused_does_not_stay(known: KnownContainers) -> None:
    created(known, ContainerResourceHookResponse())
    UPDATE.subject(known, cri.UpdateContainerResourcesRequest(container_id="c", linux={"cpu_shares": 500}))
    assert known.containers["c"].subject.container_resources.cpu_shares == 102


def test_a_container_of_a_sandbox_whose_answer_was_lost_has_the_pod_of_its_own_request() -> None:
    subject = CREATE.subject(KnownContainers(), create_request())
    assert subject is not None
    assert (subject.pod_meta.name, subject.pod_labels["app"]) == ("web", "web")
    assert CREATE.subject(KnownContainers(), cri.CreateContainerRequest(pod_sandbox_id="s")) is None


def test_a_pod_that_only_a_container_names_is_known_once_the_runtime_has_accepted_the_container() -> None:
    known, request = KnownContainers(), create_request()
    subject = CREATE.subject(known, request)
    assert not known.pods
    CREATE.record(known, request, subject, cri.CreateContainerResponse(container_id="c").SerializeToString())
    assert known.pods["s"].pod_meta.uid == "u"
    before = run_pod(known)
    CREATE.record(known, request, subject, cri.CreateContainerResponse(container_id="c").SerializeToString())
    assert known.pods["s"] is before


def test_what_has_stopped_is_no_longer_known(known: KnownContainers) -> None:
    created(known, ContainerResourceHookResponse())
    stop = cri.StopContainerRequest(container_id="c")
    assert STOP.subject(known, stop) is not None
    STOP.record(known, stop, STOP.subject(known, stop), b"")
    assert START.subject(known, cri.StartContainerRequest(container_id="c")) is None
    created(known, ContainerResourceHookResponse())
    REMOVE.record(known, cri.RemoveContainerRequest(container_id="c"), None, b"")
    assert not known.containers
    created(known, ContainerResourceHookResponse())
    STOP_POD.record(known, cri.StopPodSandboxRequest(pod_sandbox_id="s"), None, b"")
    assert not known.pods
    assert not known.containers


def test_restored_containers_have_their_pods_and_an_update_without_former_resources_stands_alone() -> None:
    known = KnownContainers()
    pods = cri.ListPodSandboxResponse(items=[{"id": "s", **{k: v for k, v in SANDBOX.items() if k != "linux"}}])
    listed = [
        {"id": "c", "pod_sandbox_id": "s", "metadata": {"name": "main", "attempt": 2}, "annotations": {"n": "1"}},
        {"id": "lost", "pod_sandbox_id": "gone"},
    ]
    known.restore(pods, cri.ListContainersResponse(containers=listed))
    assert list(known.containers) == ["c"]
    update = cri.UpdateContainerResourcesRequest(container_id="c", linux={"cpu_shares": 5})
    subject = UPDATE.subject(known, update)
    assert subject is not None
    assert (subject.pod_meta.uid, subject.pod_labels["app"], subject.container_meta.attempt) == ("u", "web", 2)
    assert subject.container_resources == LinuxContainerResources(cpu_shares=5)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"container_annotations": {"io.kubernetes.container.hash": "x"}}, "io.kubernetes.container.hash"),
        ({"pod_cgroup_parent": "/kubepods/../../other"}, "pod_cgroup_parent is '/kubepods/../../other'"),
        ({"container_envs": {"A=B": "1"}}, "container_envs has 'A=B'"),
        ({"container_envs": {"A": "\0"}}, "container_envs has 'A'"),
        ({"container_resources": {"cpu_quota": -2}}, "container_resources.cpu_quota is -2"),
        ({"container_resources": {"memory_limit_in_bytes": -5}}, "is -5; give an amount, or 0 or -1"),
        ({"container_resources": {"cpuset_cpus": "all"}}, "container_resources.cpuset_cpus: 'all'"),
    ],
)
def test_an_answer_that_lies_is_not_used(known: KnownContainers, answer: dict[str, Any], text: str) -> None:
    subject = CREATE.subject(known, create_request())
    before = subject.SerializeToString(deterministic=True)  # type: ignore[union-attr]  # the pod is known
    with pytest.raises(BadAnswer, match=text.replace("[", r"\[").replace(".", r"\.")):
        merge_answer(subject, ContainerResourceHookResponse(**answer))
    assert subject.SerializeToString(deterministic=True) == before  # type: ignore[union-attr]


def test_a_pod_keeps_the_labels_of_the_kubelet() -> None:
    subject = RUN.subject(KnownContainers(), cri.RunPodSandboxRequest(config=SANDBOX))
    with pytest.raises(BadAnswer, match=r"labels changes .* by which the kubelet"):
        merge_answer(subject, PodSandboxHookResponse(labels={"io.kubernetes.pod.uid": "other"}))
    merge_answer(subject, PodSandboxHookResponse(labels={"io.kubernetes.pod.uid": "u"}))
