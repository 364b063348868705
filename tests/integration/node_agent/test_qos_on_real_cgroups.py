"""The QoS manager on this machine's own cgroups: an agent process on a real bus, checked by the kernel's values."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.bench.agent_pod_cgroups import PodCgroups
from cli.embedded import EmbeddedNats
from cli.processes.free_ports import free_port
from shared.agents import actions, node_pods, node_slo, receipt, subjects
from shared.agents.actions import AnyAction, Suppressed
from shared.agents.node_pods import NodePods
from shared.agents.node_slo import NodeSlo
from shared.agents.receipt import Receipt
from shared.bus import Bus
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeStatus
from shared.kube.pod import Pod
from tests.integration.node_agent.agent_process import DEADLINE_S, NODE, an_agent, page
from tests.support.pods import kept_pod
from tests.support.waiting import until

CONTAINER = "c" * 64
KERNEL = Path("/sys/fs/cgroup")


class Core:
    """Acts as ingest: publishes one best-effort pod and a NodeSLO, and accepts the agent's actions.

    Attributes:
        actions: the actions received.
    """

    def __init__(self, bus: Bus) -> None:
        self.actions: list[AnyAction] = []
        self.seq = 1
        self.pods: tuple[Pod, ...] = ()
        self._bus = bus

    async def attend(self, transport: str) -> None:
        """Accepts actions: over NATS as requests; over MQTT, which the server maps to the same subject, as messages."""
        where = subjects.subject(NODE, subjects.ACTION)
        if transport == "nats":
            await self._bus.respond(where, self._take)
            return
        tasks: set[asyncio.Task[bytes]] = set()

        def receive(data: bytes) -> None:
            tasks.add(asyncio.get_running_loop().create_task(self._take(data)))

        await self._bus.subscribe(where, receive)

    async def slo(self, **spec: object) -> None:
        self.seq += 1
        await self._bus.publish(subjects.subject(NODE, subjects.SLO), node_slo.encode(NodeSlo(NODE, 1, self.seq, spec)))

    async def _take(self, data: bytes) -> bytes:
        action = actions.decode(data, NODE)
        if isinstance(action.action, actions.PodsRequested):
            amounts = {"cpu": str(os.cpu_count()), "memory": "8Gi"}
            node = Node(metadata=Metadata(name=NODE), status=NodeStatus(capacity=amounts, allocatable=amounts))
            found = NodePods(NODE, 1, self.seq, node, None, self.pods)
            await self._bus.publish(subjects.subject(NODE, subjects.PODS), node_pods.encode(found))
        else:
            self.actions.append(action.action)
        return receipt.encode(Receipt("action", action.boot, action.seq))


@pytest.fixture
async def core(server: EmbeddedNats) -> AsyncIterator[Core]:
    bus = Bus(server.url, name="ingest")
    await bus.start()
    yield Core(bus)
    await bus.close()


def batch(uid: str) -> Pod:
    requests = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "256Mi"}
    labels, kube = {"koordinator.sh/qosClass": "BE"}, "BestEffort"
    return kept_pod("b", uid=uid, labels=labels, requests=requests, limits=requests, phase="Running", qos_class=kube)


@pytest.mark.skipif(not (KERNEL / "cpuset").is_dir(), reason="needs the kernel's cgroup v1 controllers cpu and cpuset")
@pytest.mark.parametrize("transport", ["nats", "mqtt"])
async def test_a_best_effort_pod_is_limited_as_its_annotation_requests_until_the_end(
    transport: str, server: EmbeddedNats, core: Core, cgroups: PodCgroups, tmp_path: Path
) -> None:
    uid = cgroups.add(qos="besteffort", container=CONTAINER)
    core.pods = (batch(uid),)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / f"b_d_c-{CONTAINER}.log").touch()
    await core.attend(transport)
    folder = f"{cgroups.parent}/kubepods/besteffort"
    pod = f"{folder}/pod{uid}"

    def held(knob: str, where: str) -> str:
        return (KERNEL / knob.partition(".")[0] / where / knob).read_text().strip()

    knobs = ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes", "cpuset.cpus")
    places = (folder, pod, f"{pod}/{CONTAINER}")
    before = {(knob, where): held(knob, where) for knob in knobs for where in places}
    http = f"127.0.0.1:{free_port()}"
    process = an_agent(
        tmp_path,
        server,
        KOORD_NODE_AGENT_TRANSPORT=transport,
        KOORD_NODE_AGENT_CGROUP_PARENT=cgroups.parent,
        KOORD_NODE_AGENT_CONTAINER_LOGS=str(logs),
        KOORD_HTTP_ADDR=http,
    )
    process.start()
    try:
        desired = {"cpu.shares": "512", "cpu.cfs_quota_us": "50000", "memory.limit_in_bytes": str(256 << 20)}
        await until(
            lambda: all(
                held(knob, where) == value for knob, value in desired.items() for where in (pod, f"{pod}/{CONTAINER}")
            )
        )
        await core.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressPolicy": "cfsQuota"})
        await until(lambda: held("cpu.cfs_quota_us", folder) != "-1")
        await until(lambda: any(isinstance(action, Suppressed) for action in core.actions))
        await until(lambda: held("cpu.cfs_quota_us", pod) == "-1")  # the class is limited as a whole, its pods no more
        metrics = await asyncio.to_thread(page, http, "metrics")
        assert re.search(rf'koordlet_be_suppress_cpu_cores{{node="{NODE}",type="cfsQuota"}} \d', metrics)
        assert re.search(rf'koord_node_agent_writes_total{{node="{NODE}"}} [1-9]', metrics)
        assert f'koord_node_agent_known_pods{{node="{NODE}"}} 1.0' in metrics
        process.request_exit()
        assert await asyncio.to_thread(process.wait, DEADLINE_S) == 0
    finally:
        process.stop()
    assert {key: held(*key) for key in before} == before
