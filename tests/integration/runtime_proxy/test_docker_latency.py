"""The time that the proxy adds to requests of a kubelet to a real dockerd, without a hook and with the node agent's."""

import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.integration.runtime_proxy.docker_node import DockerKubelet, DockerNode, docker_kubelet
from tests.integration.runtime_proxy.proxy_process import ProxyProcess

pytestmark = [pytest.mark.soak, pytest.mark.node]

BLOCKS, OF_EACH = 40, 10
"""Requests of each kind in turn, before those of the next: all kinds meet the same other work of the machine."""
MAX_ADDED_MS = 10
"""Of the median, on a loaded machine."""
BATCH = {"kubernetes.io/batch-cpu": "50", "kubernetes.io/batch-memory": "32Mi"}


async def timed(kubelet: DockerKubelet, call: Callable[[], Awaitable[str]]) -> float:
    """Returns the milliseconds of a request that makes a container, which is removed afterwards."""
    began = time.perf_counter()
    container = await call()
    took_ms = (time.perf_counter() - began) * 1e3
    if container:
        await kubelet.remove(container)
    return took_ms


async def test_what_the_proxy_adds_to_a_request(docker: DockerNode) -> None:
    proxy = ProxyProcess(docker.folder, docker.socket, "--backend-runtime-mode=Docker")
    proxy.start()
    took_ms: dict[str, list[float]] = {}
    load = os.getloadavg()[0]
    async with (
        docker_kubelet(proxy.socket, docker, "latency") as through,
        docker_kubelet(docker.socket, docker, "latency") as direct,
    ):
        spec = {"containers": {"main": {"requests": BATCH, "limits": BATCH}}}
        through.labels["koordinator.sh/qosClass"] = "BE"
        through.annotations["node.koordinator.sh/extended-resource-spec"] = json.dumps(spec)
        sandbox = await through.run_sandbox()

        async def ping(kubelet: DockerKubelet) -> str:
            await kubelet.call("GET", "/_ping")
            return ""

        async def block(name: str, call: Callable[[], Awaitable[str]]) -> None:
            took_ms.setdefault(name, []).extend([await timed(direct, call) for _ in range(OF_EACH)])

        for _ in range(BLOCKS):
            await block("ping, direct", lambda: ping(direct))
            await block("ping, proxy", lambda: ping(through))
            await block("create, direct", lambda: direct.create(sandbox, CpuShares=2))
            await block("create, proxy without hooks", lambda: through.create(sandbox, CpuShares=2))
            async with proxy.hooked_by_agent():
                await block("create, proxy with the agent's hooks", lambda: through.create(sandbox, CpuShares=2))
    proxy.process.kill()
    print(f"{docker.version}, {BLOCKS * OF_EACH} requests of each kind, load {load:.1f} to {os.getloadavg()[0]:.1f}")
    for name, values in took_ms.items():
        cuts = statistics.quantiles(values, n=100)
        print(f"{name}: p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms")
    added = statistics.median(took_ms["create, proxy without hooks"]) - statistics.median(took_ms["create, direct"])
    assert added < MAX_ADDED_MS
