"""Hook answers in requests of Docker's API, and containers as Docker has them: spec/node-agent.md 5.2, 5.6, 5.7."""

import copy
from typing import Any

import msgspec
import pytest

from services.runtime_proxy.answer_check import BadAnswer
from services.runtime_proxy.docker.container_config import (
    ContainerConfig,
    HostConfig,
    KubernetesName,
    docker_cgroup_parent,
    full_cgroup_parent,
    parse_name,
    resources_of,
)
from services.runtime_proxy.docker.docker_calls import (
    BadRequest,
    DockerRequest,
    NotOfKubelet,
    UndecodableAnswer,
    call_of,
    decode,
    not_carried,
    operation_of,
)
from services.runtime_proxy.docker.restore import Inspected, known_of
from services.runtime_proxy.hooked_calls import merge_answer
from services.runtime_proxy.known_containers import KnownContainers
from shared.runtime_hooks.messages import (
    ContainerResourceHookResponse,
    LinuxContainerResources,
    PodSandboxHookResponse,
)

POD_NAME, NAME = "k8s_POD_web_default_u-1_2", "k8s_main_web_default_u-1_3"
POD_LABELS = {
    "io.kubernetes.docker.type": "podsandbox",
    "app": "web",
    "annotation.owner": "kubelet",
}
LABELS = {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": "s", "annotation.hash": "h"}
RESOURCES = {"CpuPeriod": 100_000, "CpuQuota": 50_000, "CpuShares": 102, "Memory": 1 << 20, "MemorySwap": 2 << 20}
CPUSETS = {"CpusetCpus": "0-1", "CpusetMems": "0"}
PARENT = "/kubepods/podu-1"
POD_BODY = {"Image": "pause", "Labels": POD_LABELS, "HostConfig": {"CgroupParent": PARENT, "CpuShares": 2}}
BODY = {
    "Image": "web",
    "Env": ["A=1", "B=x=y", "UNSET"],
    "Labels": LABELS,
    "HostConfig": {**RESOURCES, **CPUSETS, "OomScoreAdj": 950, "CgroupParent": PARENT, "New": {"Field": 1.5}},
    "NetworkingConfig": None,
}


def request(operation: Any, body: Any = None, name: str = "", driver: str = "cgroupfs") -> DockerRequest:
    container = "" if operation == "create" else "c"
    return decode(operation, container, name, msgspec.json.encode(body), driver)


def carried_out(known: KnownContainers, made: DockerRequest, answer: Any, response: Any = None) -> Any:
    """Returns the subject as it was before the answer."""
    call = call_of(known, made)
    subject = call.subject(known, made)
    before = copy.deepcopy(subject)
    if answer is not None:
        merge_answer(subject, answer)
        assert call.write is not None
        call.write(made, subject)
    call.record(known, made, subject, msgspec.json.encode(response))
    return before


def run_pod(known: KnownContainers, answer: Any = None, **more: Any) -> tuple[DockerRequest, Any]:
    made = request("create", POD_BODY, POD_NAME, **more)
    return made, carried_out(known, made, answer, {"Id": "s"})


def created(known: KnownContainers, answer: Any, body: Any = None) -> tuple[DockerRequest, Any]:
    made = request("create", body or BODY, NAME)
    return made, carried_out(known, made, answer, {"Id": "c", "Warnings": []})


@pytest.fixture
def known() -> KnownContainers:
    found = KnownContainers()
    run_pod(found)
    return found


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("POST", "/v1.41/containers/create", ("create", "")),
        ("POST", "/containers/create", ("create", "")),
        ("POST", "/v1.100/containers/abc/start", ("start", "abc")),
        ("POST", "/containers/abc/stop", ("stop", "abc")),
        ("POST", "/containers/a-b.c/update", ("update", "a-b.c")),
        ("DELETE", "/v1.24/containers/abc", ("remove", "abc")),
        ("GET", "/containers/abc/json", None),
        ("GET", "/containers/create", None),
        ("POST", "/containers/prune", None),
        ("POST", "/containers/abc/stopped", None),
        ("POST", "/x/containers/create", None),
        ("POST", "/images/create", None),
    ],
)
def test_the_table_of_requests(method: str, path: str, operation: tuple[str, str] | None) -> None:
    assert operation_of(method, path) == operation


def test_every_version_that_docker_routes_is_intercepted() -> None:
    assert operation_of("POST", "/v1.41.0/containers/create") == ("create", "")
    assert operation_of("POST", "/v1/containers/abc/start") == ("start", "abc")


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (NAME, KubernetesName("main", "web", "default", "u-1", 3)),
        ("/" + NAME, KubernetesName("main", "web", "default", "u-1", 3)),
        (NAME + "_0badcafe", KubernetesName("main", "web", "default", "u-1", 3)),
        ("k8s_main_web_default_u_99999999999", KubernetesName("main", "web", "default", "u", 0)),
        ("k8s_main_web_default_u_x", KubernetesName("main", "web", "default", "u", 0)),
        (NAME + "_5", None),
        ("k8s_main_web_default_u", None),
        ("", None),
    ],
)
def test_a_name_has_six_parts(name: str, parsed: KubernetesName | None) -> None:
    assert parse_name(name) == parsed


@pytest.mark.parametrize(
    ("docker", "path"),
    [
        (
            "kubepods-besteffort-podX.slice",
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podX.slice",
        ),
        ("kubepods-podX.slice", "/kubepods.slice/kubepods-podX.slice"),
        ("podX.slice", "/podX.slice"),
        ("", ""),
    ],
)
def test_a_slice_has_the_slices_above_it_in_its_name(docker: str, path: str) -> None:
    assert full_cgroup_parent("systemd", docker) == path
    assert docker_cgroup_parent("systemd", path) == docker
    assert full_cgroup_parent("cgroupfs", docker) == docker
    assert docker_cgroup_parent("cgroupfs", "/kubepods/podX") == "/kubepods/podX"


def test_a_sandbox_is_a_pod_with_the_resources_of_its_request_and_an_answer_changes_them() -> None:
    known = KnownContainers()
    made, before = run_pod(
        known,
        PodSandboxHookResponse(
            labels={"new": "1"}, annotations={"a": "1"}, cgroup_parent="/other/pod", resources={"cpu_shares": 51}
        ),
    )
    assert (before.pod_meta.name, before.pod_meta.namespace, before.pod_meta.uid) == ("web", "default", "u-1")
    assert (before.pod_meta.attempt, before.runtime_handler) == (2, "docker")
    assert dict(before.labels) == {"io.kubernetes.docker.type": "podsandbox", "app": "web"}
    assert dict(before.annotations) == {"owner": "kubelet"}
    assert (before.cgroup_parent, before.resources.cpu_shares) == (PARENT, 2)
    host = {"CgroupParent": "/other/pod", "CpuShares": 51}
    assert made.body == POD_BODY | {"HostConfig": host}, "labels are not sent to Docker"
    assert known.pods["s"].labels["new"] == "1"
    subject = created(known, None)[1]
    assert (subject.pod_cgroup_parent, subject.pod_resources.cpu_shares) == ("/other/pod", 51)


def test_with_systemd_hook_servers_get_paths_and_docker_its_names() -> None:
    known = KnownContainers()
    body = POD_BODY | {"HostConfig": {"CgroupParent": "kubepods-podX.slice"}}
    made = request("create", body, POD_NAME, driver="systemd")
    before = carried_out(known, made, PodSandboxHookResponse(cgroup_parent="/kubepods.slice/other.slice"), {"Id": "s"})
    assert before.cgroup_parent == "/kubepods.slice/kubepods-podX.slice"
    assert made.body["HostConfig"] == {"CgroupParent": "other.slice"}


def test_a_container_starts_with_what_its_answer_has_and_keeps_the_rest(known: KnownContainers) -> None:
    made, before = created(
        known,
        ContainerResourceHookResponse(
            container_resources={"cpu_shares": 51, "cpu_quota": -1, "cpuset_cpus": "1", "oom_score_adj": 10},
            container_envs={"C": "3", "A": "2"},
            container_annotations={"new": "1"},
        ),
    )
    assert dict(before.container_envs) == {"A": "1", "B": "x=y"}
    assert dict(before.container_annotations) == {"hash": "h"}
    assert (before.container_meta.name, before.container_meta.attempt) == ("main", 3)
    assert (before.pod_meta.uid, before.pod_labels["app"], before.pod_annotations["owner"]) == ("u-1", "web", "kubelet")
    assert before.container_resources == LinuxContainerResources(
        cpu_period=100_000, cpu_quota=50_000, cpu_shares=102, memory_limit_in_bytes=1 << 20, oom_score_adj=950,
        memory_swap_limit_in_bytes=2 << 20, cpuset_cpus="0-1", cpuset_mems="0",
    )  # fmt: skip
    host = BODY["HostConfig"] | {  # type: ignore[operator]
        "CpuShares": 51, "CpuQuota": -1, "CpusetCpus": "1", "CpusetMems": "", "OomScoreAdj": 10,
    }  # fmt: skip
    assert made.body == BODY | {"HostConfig": host, "Env": ["A=2", "UNSET", "C=3"]}
    assert known.containers["c"].subject.container_meta.id == "c"


def test_cpus_in_billionths_are_a_quota_which_an_answer_replaces(known: KnownContainers) -> None:
    made, before = created(
        known,
        ContainerResourceHookResponse(container_resources={"cpu_quota": 20_000}),
        BODY | {"HostConfig": {"NanoCpus": 500_000_000}},
    )
    assert (before.container_resources.cpu_period, before.container_resources.cpu_quota) == (100_000, 50_000)
    assert made.body["HostConfig"] == {"CpuPeriod": 100_000, "CpuQuota": 20_000, "CgroupParent": PARENT}


def test_an_update_is_merged_into_what_the_container_had(known: KnownContainers) -> None:
    created(known, None)
    made = request("update", {"CpuShares": 500, "CpuQuota": -1, "RestartPolicy": {"Name": "no"}})
    before = carried_out(known, made, ContainerResourceHookResponse(container_resources={"cpu_shares": 600}))
    assert (before.container_resources.cpu_shares, before.container_resources.cpu_quota) == (500, -1)
    assert (before.container_resources.cpuset_cpus, before.container_resources.oom_score_adj) == ("0-1", 950)
    assert made.body == RESOURCES | {"CpuShares": 600, "CpuQuota": -1, "RestartPolicy": {"Name": "no"}}
    assert known.containers["c"].subject.container_resources.cpu_shares == 600
    unknown = request("update", {"CpuShares": 1})._replace(container_id="other")
    assert call_of(known, unknown).subject(known, unknown) is None


def test_containers_and_pods_are_forgotten_once_they_have_stopped_or_are_removed(known: KnownContainers) -> None:
    for operation in ("stop", "remove"):
        created(known, None)
        made = request(operation)
        assert carried_out(known, made, None).container_meta.id == "c"
        assert not known.containers
        assert call_of(known, made).subject(known, made) is None
    for operation in ("stop", "remove"):
        run_pod(known)
        created(known, None)
        carried_out(known, request(operation)._replace(container_id="s", pod_sandbox_id="s"), None)
        assert not known.pods
        assert not known.containers
    start = request("start")._replace(container_id="s")
    assert call_of(known, start).subject(known, start) is None, "the start of a sandbox has no hook"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", "container k8s_main_web_default_u-1_3: it is no JSON"),
        (b"", "it is no JSON"),
        (b"[]", "expected an object, got a list"),
        (b'{"a":"\\ud800"}', "container k8s_main"),
        (b"\xff", "container k8s_main"),
        (b"[" * 50_000, "container k8s_main"),
        (b'{"HostConfig":{"Memory":"1g"}}', "HostConfig.Memory: expected a whole number, got a string"),
        (b'{"HostConfig":{"Memory":1e3}}', "HostConfig.Memory"),
        (b'{"HostConfig":{"Memory":9223372036854775808}}', "HostConfig.Memory"),
        (b'{"Env":[1]}', r"Env\[0\]: expected a string"),
        (b'{"Labels":{"a":null}}', "Labels"),
    ],
)
def test_a_body_that_cannot_be_decoded_is_named_with_its_field(body: bytes, error: str) -> None:
    with pytest.raises(BadRequest, match=error):
        decode("create", "", NAME, body, "cgroupfs")


def test_what_no_kubelet_creates_is_refused(known: KnownContainers) -> None:
    with pytest.raises(NotOfKubelet, match=r"the name 'web' is not k8s_<container>_<pod>.*use Docker's own socket"):
        decode("create", "", "web", b"{}", "cgroupfs")
    for labels, text in ((LABELS | {"io.kubernetes.sandbox.id": "gone"}, "sandbox gone"), (None, "no label")):
        made = request("create", BODY | {"Labels": labels}, NAME)
        with pytest.raises(NotOfKubelet, match=f"container main of pod default/web: its .*{text}.* is not known"):
            call_of(known, made).subject(known, made)


def test_an_answer_of_docker_without_an_id_records_nothing(known: KnownContainers) -> None:
    made = request("create", BODY, NAME)
    call = call_of(known, made)
    for data in (b"", b"{}", b'{"Id":1}'):
        with pytest.raises(UndecodableAnswer, match="names no container"):
            call.record(known, made, call.subject(known, made), data)
    assert not known.containers


def test_keys_for_which_docker_has_no_field_are_named(known: KnownContainers) -> None:
    made = request("create", BODY, NAME)
    subject = call_of(known, made).subject(known, made)
    assert not not_carried(subject)
    merge_answer(subject, ContainerResourceHookResponse(container_resources={"unified": {"cpu.bvt_warp_ns": "2"}}))
    assert not_carried(subject) == "Docker's API has no field for cpu.bvt_warp_ns"


def test_a_pods_answer_with_resources_that_no_runtime_accepts_is_not_used() -> None:
    made = request("create", POD_BODY, POD_NAME)
    subject = call_of(KnownContainers(), made).subject(KnownContainers(), made)
    with pytest.raises(BadAnswer, match=r"resources.cpu_quota is -2"):
        merge_answer(subject, PodSandboxHookResponse(resources={"cpu_quota": -2}))


def inspected(number: str, name: str, **config: Any) -> Inspected:
    host = HostConfig(cpu_shares=7, cgroup_parent="kubepods-podX.slice")
    return Inspected(number, name, ContainerConfig(**config), host)


def test_a_proxy_that_starts_again_has_what_docker_has() -> None:
    sandbox = inspected("s", "/" + POD_NAME, labels=POD_LABELS)
    container = inspected("c", "/" + NAME, labels=LABELS, env=["A=1", "PATH"])
    lost = inspected("lost", "/" + NAME, labels=LABELS | {"io.kubernetes.sandbox.id": "gone"})
    other = inspected("other", "/web", labels=LABELS)
    known = known_of([container, lost, other, sandbox], "systemd")
    assert (list(known.pods), list(known.containers)) == (["s"], ["c"])
    subject = known.containers["c"].subject
    assert (subject.pod_meta.name, subject.pod_meta.uid, subject.container_meta.name) == ("web", "u-1", "main")
    assert subject.pod_cgroup_parent == "/kubepods.slice/kubepods-podX.slice"
    assert subject.container_resources == resources_of(HostConfig(cpu_shares=7)) == subject.pod_resources
    assert dict(subject.container_envs) == {"A": "1"}
