"""The runtime proxy as a process in front of a real dockerd, with hook servers that answer and hang."""

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from cli.processes.child_process import ProgramFailed
from shared.runtime_hooks import stages
from tests.integration.runtime_proxy.docker_node import (
    DockerKubelet,
    DockerNode,
    Refused,
    docker_cli,
    docker_kubelet,
)
from tests.integration.runtime_proxy.proxy_process import HOOK_WITHIN_S, ProxyProcess
from tests.support.kube_system import beside
from tests.support.waiting import until
from tests.unit.runtime_proxy.hook_server import HookServer, changed, hanging, register

pytestmark = pytest.mark.node
T = TypeVar("T")
STARTS, KILL_INTERVAL_S = 40, 0.5
UPGRADE = {"Connection": "Upgrade", "Upgrade": "tcp"}


class Proxy(ProxyProcess):
    """The proxy before dockerd."""

    def __init__(self, node: DockerNode) -> None:
        super().__init__(node.folder, node.socket, "--backend-runtime-mode=Docker")
        self.node = node

    def kubelet(self, pod: str) -> AbstractAsyncContextManager[DockerKubelet]:
        return docker_kubelet(self.socket, self.node, pod)


@pytest.fixture(scope="module")
def proxy(docker: DockerNode) -> Iterator[Proxy]:
    found = Proxy(docker)
    found.start()
    yield found
    found.process.kill()


@pytest.fixture
async def hooks(proxy: Proxy) -> AsyncIterator[HookServer]:
    async with proxy.hooked() as server:
        yield server


async def test_requests_without_hooks_are_those_of_docker(proxy: Proxy) -> None:
    assert stat.S_IMODE(proxy.socket.stat().st_mode) == 0o600
    answers = []
    for socket in (proxy.socket, proxy.node.socket):
        async with docker_kubelet(socket, proxy.node, "none") as kubelet:
            found = [await kubelet.call("GET", "/version"), await kubelet.call("GET", "/images/json")]
            for method, path in (("POST", "/containers/none/start"), ("POST", "/containers/none/stop"), ("GET", "/x")):
                with pytest.raises(Refused) as refused:
                    await kubelet.call(method, path)
                found.append(str(refused.value))
            answers.append(found)
    assert answers[0] == answers[1]
    print(f"{proxy.node.version}, API {answers[0][0]['ApiVersion']}")


def test_dockers_own_client_works_through_the_proxy(proxy: Proxy) -> None:
    assert "workload" in docker_cli(proxy.socket, "images")
    docker_cli(proxy.socket, "load", f"--input={proxy.node.folder / 'workload.tar'}")


async def test_a_container_starts_with_the_values_of_its_hooks(proxy: Proxy, hooks: HookServer) -> None:
    def set_values(answer: object) -> None:
        resources = answer.container_resources  # type: ignore[attr-defined]
        resources.cpu_shares, resources.cpu_quota, resources.memory_limit_in_bytes = 1536, 25_000, 256 << 20
        resources.cpuset_cpus = "0"
        answer.container_envs["B"] = "2"  # type: ignore[attr-defined]

    hooks.answers[stages.RUN_POD_SANDBOX] = changed(lambda answer: answer.annotations.update(ran="yes"))
    hooks.answers[stages.CREATE_CONTAINER] = changed(set_values)
    async with proxy.kubelet("web") as kubelet:
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, CpuShares=102, CpuPeriod=100_000, CpuQuota=50_000, OomScoreAdj=500)
        await kubelet.container("start", container)
        assert await kubelet.first_values(container) == {
            "cpu.shares": "1536",
            "cpu.cfs_quota_us": "25000",
            "memory.limit_in_bytes": str(256 << 20),
            "cpuset.cpus": "0",
            "oom_score_adj": "500",
        }
        assert (await kubelet.inspect(container))["Config"]["Env"][:2] == ["A=1", "B=2"]
        await kubelet.container("update", container, {"CpuShares": 300})
        assert kubelet.cgroup(container, "cpu.shares") == "300"
        assert kubelet.cgroup(container, "cpu.cfs_quota_us") == "25000"
        for each in (container, container, sandbox, sandbox):  # a kubelet repeats it
            await kubelet.stop(each)
        await kubelet.remove(container)
        await kubelet.remove(sandbox)
    assert hooks.stages == [
        "PreRunPodSandbox",
        "PreCreateContainer",
        "PreStartContainer",
        "PostStartContainer",
        "PreUpdateContainerResources",
        "PostStopContainer",
        "PostStopPodSandbox",
    ]
    created = hooks.called[1][1]
    assert (created.pod_annotations["ran"], created.pod_annotations["owner"]) == ("yes", "kubelet")
    assert (created.container_envs["A"], created.container_annotations["hash"]) == ("1", "h")
    assert (created.container_resources.cpu_shares, created.pod_meta.uid) == (102, "uid-web")
    assert hooks.called[5][1].container_meta.id == container


async def test_the_agents_hooks_reach_a_container_through_the_proxy(proxy: Proxy) -> None:
    batch = {"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "32Mi"}
    spec = {"containers": {"main": {"requests": batch, "limits": batch}}}
    async with proxy.hooked_by_agent() as records, proxy.kubelet("batch") as kubelet:
        kubelet.labels["koordinator.sh/qosClass"] = "BE"
        kubelet.annotations["node.koordinator.sh/extended-resource-spec"] = json.dumps(spec)
        kubelet.annotations["koordinator.sh/oom-score-adj"] = "950"
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, CpuShares=2, OomScoreAdj=1000)
        await kubelet.container("start", container)
        values = await kubelet.first_values(container)
        await kubelet.container("update", container, {"CpuShares": 2})
        assert kubelet.cgroup(container, "cpu.shares") == "51", "the agent keeps its value in an update"
    assert (values["cpu.shares"], values["cpu.cfs_quota_us"], values["oom_score_adj"]) == ("51", "5000", "950")
    assert values["memory.limit_in_bytes"] == str(32 << 20)
    (record,) = (each for report in records.reports(0) for each in report.containers)
    assert (record.container_id, record.state, record.route) == (container, "applied", "proxy")
    assert (record.pod, record.pod_uid, record.container) == ("default/batch", "uid-batch", "main")
    assert record.hooks == ("BatchResource", "OOMScoreAdj")


@asynccontextmanager
async def attached(
    proxy: Proxy, path: str, headers: dict[str, str], body: bytes = b""
) -> AsyncIterator[tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Opens a connection that is bytes once its head is read; yields the first line of that."""
    reader, writer = await asyncio.open_unix_connection(proxy.socket)
    lines = [f"POST /v1.41{path} HTTP/1.1", "Host: docker", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: application/json", *(f"{key}: {value}" for key, value in headers.items())]
    writer.write("\r\n".join((*lines, "", "")).encode() + body)
    head = await reader.readuntil(b"\r\n\r\n")
    try:
        yield head.split(b"\r\n")[0], reader, writer
    finally:
        writer.close()


async def frames(reader: asyncio.StreamReader) -> bytes:
    """Returns what a container printed, until the end."""
    found = b""
    async with asyncio.timeout(10):
        while header := await reader.read(8):
            found += await reader.readexactly(int.from_bytes(header[4:], "big"))
    return found


@pytest.mark.parametrize("headers", [UPGRADE, {}], ids=["upgraded", "an older client"])
async def test_attach_and_exec_pass_bytes_in_both_directions(proxy: Proxy, headers: dict[str, str]) -> None:
    async with proxy.kubelet(f"attach{len(headers)}") as kubelet:
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, of_host="/bin/cat")
        path = f"/containers/{container}/attach?stream=1&stdin=1&stdout=1"
        async with attached(proxy, path, headers) as (status, reader, writer):
            assert status == (b"HTTP/1.1 101 UPGRADED" if headers else b"HTTP/1.1 200 OK")
            await kubelet.container("start", container)
            config = {"AttachStdout": True, "AttachStdin": True, "Cmd": ["/usr/bin/wc", "-c"]}
            run = (await kubelet.container("exec", container, config))["Id"]
            async with attached(proxy, f"/exec/{run}/start", headers, b'{"Detach":false}') as (_, counted, counting):
                counting.write(b"x" * 1_000_000)
                counting.write_eof()
                assert await frames(counted) == b"1000000\n"
            assert docker_cli(proxy.socket, "exec", container, "/bin/echo", "there") == "there\n"
            docker_cli(proxy.socket, "cp", f"{container}:/workload", str(proxy.folder))
            sent = b"".join(b"line %d\n" % number for number in range(20_000))
            writer.write(sent)
            writer.write_eof()  # the end of cat's input, and so of the container
            assert await frames(reader) == sent
        assert (await kubelet.container("wait", container))["StatusCode"] == 0


async def test_events_and_logs_come_as_they_happen(proxy: Proxy) -> None:
    async with (
        proxy.kubelet("streams") as kubelet,
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(proxy.socket))) as client,
        client.get('http://docker/events?filters={"event":["create"]}') as events,
    ):
        sandbox = await kubelet.run_sandbox()
        async with asyncio.timeout(5):
            assert json.loads(await events.content.readline())["id"] == sandbox


@pytest.mark.soak  # its rule is that of tests/unit/runtime_proxy/test_docker_proxy.py
async def test_a_hook_server_that_hangs_is_survived_by_its_policy(proxy: Proxy, hooks: HookServer) -> None:
    hooks.answers[stages.CREATE_CONTAINER] = hanging
    async with proxy.kubelet("hanging") as kubelet:
        sandbox = await kubelet.run_sandbox()
        register(proxy.registrations, proxy.hooks, policy="Fail")
        began = time.monotonic()
        with pytest.raises(Refused, match="500 PreCreateContainer of container main of pod default/hanging is refused"):
            await kubelet.create(sandbox)
        assert time.monotonic() - began < HOOK_WITHIN_S + 1
        register(proxy.registrations, proxy.hooks, policy="Ignore")
        container = await kubelet.create(sandbox, CpuShares=300)  # the refused one left nothing of its name behind
        await kubelet.container("start", container)
        assert (await kubelet.first_values(container))["cpu.shares"] == "300"
    assert "a hook is not applied" in proxy.log.read_text()


@pytest.mark.soak  # its rule is that of tests/unit/runtime_proxy/test_docker_proxy.py
async def test_a_hook_server_that_fails_after_a_start_is_an_error_by_its_policy(
    proxy: Proxy, hooks: HookServer
) -> None:
    hooks.answers[stages.AFTER_START_CONTAINER] = hanging
    async with proxy.kubelet("after") as kubelet:
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox)
        register(proxy.registrations, proxy.hooks, stages.AFTER_START_CONTAINER, policy="Fail")
        with pytest.raises(Refused, match="500 PostStartContainer of container main of pod default/after failed after"):
            await kubelet.container("start", container)
        assert (await kubelet.inspect(container))["State"]["Running"]
        hooks.answers.clear()
        await kubelet.container("start", container)  # a kubelet repeats it: Docker answers with 304


@pytest.mark.soak  # its rule is that of tests/unit/runtime_proxy/test_docker_proxy.py
async def test_pods_of_hook_servers_start_without_hooks(proxy: Proxy, hooks: HookServer) -> None:
    register(proxy.registrations, proxy.folder / "none.sock", policy="Fail")
    async with proxy.kubelet("agent") as kubelet:
        with pytest.raises(Refused, match="500 PreRunPodSandbox"):
            await kubelet.run_sandbox()
        kubelet.labels["runtimeproxy.koordinator.sh/skip-hookserver"] = "true"
        container = await kubelet.create(await kubelet.run_sandbox())
        await kubelet.container("start", container)
    assert not hooks.called


async def test_after_a_kill_the_containers_of_before_have_all_that_docker_has(proxy: Proxy, hooks: HookServer) -> None:
    async with proxy.kubelet("long") as kubelet:
        sandbox = await kubelet.run_sandbox()
        container = await kubelet.create(sandbox, CpuShares=200, CpuPeriod=100_000, CpuQuota=40_000, OomScoreAdj=7)
        await kubelet.container("start", container)
        proxy.process.kill()
        with pytest.raises(aiohttp.ClientError):
            await kubelet.call("GET", "/version")
        proxy.start()
        hooks.answers[stages.UPDATE_CONTAINER] = changed(
            lambda answer: setattr(answer.container_resources, "cpu_quota", 30_000)
        )
        async with docker_kubelet(proxy.node.socket, proxy.node, "beside") as beside:
            await kubelet.create(await beside.run_sandbox(), "second")  # of a sandbox that the proxy has not seen
        await kubelet.container("update", container, {"CpuShares": 400})
        assert kubelet.cgroup(container, "cpu.shares") == "400"
        assert kubelet.cgroup(container, "cpu.cfs_quota_us") == "30000"
    updated = dict(hooks.called)["PreUpdateContainerResources"]
    assert (updated.pod_meta.name, updated.pod_meta.uid, updated.container_meta.name) == ("long", "uid-long", "main")
    assert (updated.pod_labels["app"], updated.pod_annotations["owner"]) == ("long", "kubelet")
    resources = updated.container_resources
    assert (resources.cpu_shares, resources.cpu_quota, resources.oom_score_adj) == (400, 40_000, 7)
    assert (updated.container_envs["A"], updated.pod_cgroup_parent.endswith("/kubepods/poduid-long")) == ("1", True)


@pytest.mark.soak  # its rule is that of tests/unit/runtime_proxy/test_docker_proxy.py
async def test_a_proxy_that_is_stopped_finishes_its_requests(proxy: Proxy, hooks: HookServer) -> None:
    hooks.answers[stages.RUN_POD_SANDBOX] = hanging
    async with proxy.kubelet("last") as kubelet:
        call = asyncio.create_task(kubelet.run_sandbox())
        await until(lambda: asyncio.sleep(0, hooks.called), "call of the hook")
        await asyncio.to_thread(proxy.process.stop)
        assert proxy.process.exit_code == 0
        with pytest.raises(aiohttp.ClientError):
            await call  # its first request ended; the start of the sandbox found no proxy
        assert len(await _containers(proxy.node)) == 1
        assert not proxy.socket.exists()
        proxy.start()


@pytest.mark.soak
async def test_each_container_starts_right_while_the_proxy_is_killed_each_half_second(
    proxy: Proxy, hooks: HookServer
) -> None:
    """The policy is `Fail`. A kubelet tries again, and removes a container whose answer it has not got."""
    hooks.answers[stages.CREATE_CONTAINER] = changed(
        lambda answer: setattr(answer.container_resources, "cpu_shares", 77)
    )
    register(proxy.registrations, proxy.hooks, policy="Fail")
    failed = 0

    async def repeated(call: Callable[[], Awaitable[T]], name: str) -> T:
        nonlocal failed
        ends = time.monotonic() + 30
        while True:
            try:
                return await call()
            except (aiohttp.ClientError, asyncio.IncompleteReadError, Refused) as error:
                failed += 1
                if time.monotonic() > ends:
                    raise
                if isinstance(error, Refused) and error.status == 409:
                    async with docker_kubelet(proxy.node.socket, proxy.node, "none") as direct:
                        await direct.remove(f"k8s_{name}_killed_default_uid-killed_0")
                await asyncio.sleep(0.05)

    async with beside(_kill(proxy)), proxy.kubelet("killed") as kubelet:
        sandbox = await repeated(kubelet.run_sandbox, "POD")
        for number in range(STARTS):
            name = f"c{number}"
            container = await repeated(partial(kubelet.create, sandbox, name, CpuShares=2), name)
            await repeated(partial(kubelet.container, "start", container), name)
            values = await repeated(partial(kubelet.first_values, container), name)
            assert values["cpu.shares"] == "77"
            await repeated(partial(kubelet.stop, container), name)
    print(f"{STARTS} starts, {failed} requests failed meanwhile")
    assert failed


async def _kill(proxy: Proxy) -> None:
    while True:
        await asyncio.sleep(KILL_INTERVAL_S)
        proxy.process.kill()
        starting = asyncio.create_task(asyncio.to_thread(proxy.start))
        try:
            await asyncio.shield(starting)
        finally:
            await starting  # the end of the test leaves a proxy that runs


async def _containers(node: DockerNode) -> list[object]:
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(node.socket))) as client:
        found: list[object] = await DockerKubelet(client, node, "").call("GET", "/containers/json?all=1")
        return found


def test_a_start_without_docker_names_its_socket(proxy: Proxy, tmp_path: Path) -> None:
    lost = ProxyProcess(tmp_path, proxy.folder / "none.sock", "--backend-runtime-mode=Docker")
    with pytest.raises(ProgramFailed, match=r"Docker at .*/none.sock does not answer: .*--remote-runtime"):
        lost.start()
    assert lost.process.exit_code == 1
