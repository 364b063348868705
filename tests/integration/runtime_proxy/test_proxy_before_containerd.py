"""The runtime proxy as a process in front of a real containerd, with hook servers that answer, hang and lie."""

import asyncio
import json
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from shared.runtime_hooks import stages
from tests.integration.runtime_proxy.containerd_node import (
    RUNTIME,
    ContainerdNode,
    Kubelet,
    channel,
    message,
)
from tests.integration.runtime_proxy.proxy_process import HOOK_WITHIN_S, ProxyProcess
from tests.support.waiting import until
from tests.unit.runtime_proxy.hook_server import HookServer as AnyHookServer
from tests.unit.runtime_proxy.hook_server import changed, hanging, register, undecodable

pytestmark = pytest.mark.node


class Proxy(ProxyProcess):
    """The proxy before containerd."""

    def __init__(self, node: ContainerdNode, folder: Path) -> None:
        super().__init__(folder, node.socket)
        self.node = node

    @asynccontextmanager
    async def kubelet(self, pod: str, socket: Path | None = None) -> AsyncIterator[Kubelet]:
        async with channel(socket or self.socket) as opened:
            yield Kubelet(opened, self.node, pod)


@pytest.fixture(scope="module")
def proxy(containerd: ContainerdNode) -> Iterator[Proxy]:
    found = Proxy(containerd, containerd.folder)
    found.start()
    yield found
    found.process.kill()


@pytest.fixture
async def hooks(proxy: Proxy) -> AsyncIterator[AnyHookServer]:
    async with proxy.hooked() as server:
        yield server


def first_values(node: ContainerdNode, pod: str, container: str = "main", within_s: float = 5.0) -> dict[str, str]:
    """Returns the values that a container printed as its first action."""
    ends = time.monotonic() + within_s
    file = node.folder / pod / f"{container}.log"
    while time.monotonic() < ends:
        if file.exists() and (text := file.read_text()):
            found: dict[str, str] = json.loads(text.split(" ", 3)[3])
            return found
        time.sleep(0.02)
    raise AssertionError(f"{file} has no values")


async def error_of(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details()


async def annotations_of(kubelet: Kubelet, container: str) -> dict[str, str]:
    found = await kubelet.call("ContainerStatus", message("ContainerRequest")(container_id=container))
    return dict(message("ContainerStatusResponse").FromString(found).status.annotations)


async def test_calls_without_hooks_are_those_of_containerd(proxy: Proxy) -> None:
    assert stat.S_IMODE(proxy.socket.stat().st_mode) == 0o600
    async with channel(proxy.socket) as through, channel(proxy.node.socket) as direct:
        answers = []
        for opened in (through, direct):
            called = Kubelet(opened, proxy.node, "none")
            images = await opened.unary_unary("/runtime.v1.ImageService/ListImages")(b"", timeout=5)
            assert message("ListImagesResponse").FromString(images).images
            answers.append((
                await called.call("Version", message("Id")()),
                images,
                await error_of(called.container("ContainerStatus", "missing")),
                await error_of(called.container("StartContainer", "missing")),
                await error_of(called.call("NoSuchMethod", message("Id")())),
                await error_of(opened.unary_unary("/no.such.v1.Service/Method")(b"", timeout=5)),
                await error_of(opened.unary_unary(f"{RUNTIME}RunPodSandbox")(b"\xff", timeout=5)),
            ))  # fmt: skip
        assert answers[0] == answers[1]


def test_streams_in_both_directions_pass(proxy: Proxy) -> None:
    """The import of an image sends its layers as a stream of requests, in a service that is not CRI's."""
    for command in (["version"], ["images", "import", "--platform=linux/amd64", proxy.node.folder / "workload.tar"]):
        whole = [proxy.node.ctr, f"--address={proxy.socket}", "--namespace=k8s.io", *command]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == 0, done.stderr


async def test_a_container_starts_with_the_values_of_its_hooks(proxy: Proxy, hooks: AnyHookServer) -> None:
    def set_values(answer: Any) -> None:
        resources = answer.container_resources
        resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes = 1536, 25_000, 256 << 20
        resources.cpuset_cpus = "0"
        answer.container_envs["B"] = "2"
        answer.container_annotations["hooked"] = "yes"

    hooks.answers[stages.RUN_POD_SANDBOX] = changed(lambda answer: answer.annotations.update(ran="yes"))
    hooks.answers[stages.CREATE_CONTAINER] = changed(set_values)
    async with proxy.kubelet("web") as kubelet:
        events = kubelet._channel.unary_stream(f"{RUNTIME}GetContainerEvents")(b"")
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, cpu_shares=102, cpu_period=100_000, cpu_quota=50_000)
        await kubelet.container("StartContainer", container)
        assert await asyncio.to_thread(first_values, proxy.node, "web") == {
            "cpu.shares": "1536",
            "cpu.cfs_quota_us": "25000",
            "memory.limit_in_bytes": str(256 << 20),
            "cpuset.cpus": "0",
            "oom_score_adj": "0",
        }
        assert await annotations_of(kubelet, container) == {"io.kubernetes.container.hash": "h", "hooked": "yes"}
        seen = message("ContainerEventResponse").FromString(await asyncio.wait_for(events.read(), 5))
        assert seen.container_id == sandbox
        events.cancel()
        await kubelet.container("StopContainer", container)
        await kubelet.remove(container)
        await kubelet.sandbox("StopPodSandbox", sandbox)
        await kubelet.sandbox("StopPodSandbox", sandbox)  # a kubelet repeats it
        await kubelet.sandbox("RemovePodSandbox", sandbox)
    assert hooks.stages == [
        "PreRunPodSandbox",
        "PreCreateContainer",
        "PreStartContainer",
        "PostStartContainer",
        "PostStopContainer",
        "PostStopPodSandbox",
    ]
    created = hooks.called[1][1]
    assert created.pod_annotations["ran"] == "yes"
    assert dict(created.container_envs) == {"A": "1"}
    assert (created.container_resources.cpu_shares, created.pod_meta.uid) == (102, "uid-web")
    assert hooks.called[4][1].container_meta.id == container


@pytest.mark.parametrize("answer", [hanging, undecodable], ids=["hangs", "lies"])
async def test_a_hook_server_that_fails_is_survived_by_its_policy(
    proxy: Proxy, hooks: AnyHookServer, answer: Any
) -> None:
    hooks.answers[stages.CREATE_CONTAINER] = answer
    pod = answer.__name__
    async with proxy.kubelet(pod) as kubelet:
        sandbox = await kubelet.run_sandbox()
        register(proxy.registrations, proxy.hooks, policy="Fail")
        began = time.monotonic()
        code, text = await error_of(kubelet.create(sandbox))
        assert time.monotonic() - began < HOOK_WITHIN_S + 1
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert f"PreCreateContainer of container main of pod default/{pod} is refused" in text
        register(proxy.registrations, proxy.hooks, policy="Ignore")
        container = await kubelet.create(sandbox, cpu_shares=300)  # the refused one left nothing of its name behind
        await kubelet.container("StartContainer", container)
        assert (await asyncio.to_thread(first_values, proxy.node, pod))["cpu.shares"] == "300"
        await kubelet.sandbox("StopPodSandbox", sandbox)
    assert "a hook is not applied" in proxy.log.read_text()


async def test_pods_of_hook_servers_start_without_hooks(proxy: Proxy, hooks: AnyHookServer) -> None:
    register(proxy.registrations, proxy.folder / "none.sock", policy="Fail")
    async with proxy.kubelet("agent") as kubelet:
        assert (await error_of(kubelet.run_sandbox()))[0] is grpc.StatusCode.FAILED_PRECONDITION
        kubelet.config.labels["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
        sandbox = await kubelet.run_sandbox()
        await kubelet.create(sandbox)
        await kubelet.sandbox("StopPodSandbox", sandbox)
    assert not hooks.called


async def test_after_a_kill_the_containers_of_before_have_their_pods(proxy: Proxy, hooks: AnyHookServer) -> None:
    async with proxy.kubelet("long") as kubelet:
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, cpu_shares=200)
        await kubelet.container("StartContainer", container)
        proxy.process.kill()
        assert (await error_of(kubelet.call("Version", message("Id")(), wait=False)))[0] is grpc.StatusCode.UNAVAILABLE
        proxy.start()
        hooks.answers[stages.UPDATE_CONTAINER] = changed(
            lambda answer: setattr(answer.container_resources, "cpu_quota", 30_000)
        )
        second = await kubelet.create(sandbox, "second")
        await kubelet.update(container, cpu_shares=400, cpu_period=100_000)
        cgroup = proxy.node.tree.folder("cpu", f"kubepods/poduid-long/{container}")
        if cgroup.is_dir():  # its program may have ended
            assert (cgroup / "cpu.shares").read_text() == "400\n"
            assert (cgroup / "cpu.cfs_quota_us").read_text() == "30000\n"
        await kubelet.container("StopContainer", second)
        await kubelet.sandbox("StopPodSandbox", sandbox)
    updated = dict(hooks.called)["PreUpdateContainerResources"]
    assert (updated.pod_meta.name, updated.container_meta.name) == ("long", "main")
    assert updated.pod_labels["app"] == "long"
    assert updated.container_resources.cpu_shares == 400


async def test_a_proxy_that_is_stopped_finishes_its_calls(proxy: Proxy, hooks: AnyHookServer) -> None:
    hooks.answers[stages.RUN_POD_SANDBOX] = hanging
    async with proxy.kubelet("last") as kubelet:
        call = asyncio.create_task(kubelet.run_sandbox())
        await until(lambda: asyncio.sleep(0, hooks.called), "call of the hook")
        await asyncio.to_thread(proxy.process.stop)
        assert proxy.process.exit_code == 0
        assert await call
    assert not proxy.socket.exists()
    proxy.start()


async def test_the_agents_hooks_reach_a_container_through_the_proxy(proxy: Proxy) -> None:
    batch = {"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "32Mi"}
    spec = {"containers": {"main": {"requests": batch, "limits": batch}}}
    async with proxy.hooked_by_agent() as records, proxy.kubelet("batch") as kubelet:
        kubelet.config.labels["koordinator.sh/qosClass"] = "BE"
        kubelet.config.annotations["node.koordinator.sh/extended-resource-spec"] = json.dumps(spec)
        kubelet.config.annotations["koordinator.sh/oom-score-adj"] = "950"
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, cpu_shares=2, oom_score_adj=1000)
        await kubelet.container("StartContainer", container)
        values = await asyncio.to_thread(first_values, proxy.node, "batch")
        await kubelet.sandbox("StopPodSandbox", sandbox)
    assert (values["cpu.shares"], values["cpu.cfs_quota_us"], values["oom_score_adj"]) == ("51", "5000", "950")
    assert values["memory.limit_in_bytes"] == str(32 << 20)
    (record,) = (each for report in records.reports(0) for each in report.containers)
    assert (record.container_id, record.state, record.route) == (container, "applied", "proxy")
    assert (record.pod, record.pod_uid, record.container) == ("default/batch", "uid-batch", "main")
    assert record.hooks == ("BatchResource", "OOMScoreAdj")
