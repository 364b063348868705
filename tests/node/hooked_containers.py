"""The agent away from the container runtime, and the records and values of containers that started meanwhile."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from cli.dev.node.kubelet_node import RealNode, programs
from shared.protobuf_schema import message_classes
from tests.node.first_values import Start
from tests.node.koordstream_on_node import Site
from tests.support.kube_system import koord
from tests.support.waiting import until

HOOKS_APPLIED = "hooks are applied to containers before they start"
_CRI = message_classes(
    "runtime.v1",
    {
        "UpdateContainerResourcesRequest": {"container_id": (1, "string"), "linux": (2, "LinuxContainerResources")},
        "LinuxContainerResources": {"cpu_quota": (2, "int64"), "cpu_shares": (3, "int64")},
    },
)


def connections(there: Site) -> int:
    """Returns how often the agent has connected to the runtime so far."""
    return (there.folder / "logs/node-agent.log").read_text().count(HOOKS_APPLIED)


def _starts(there: Site) -> int:
    """Returns how often the agent has begun to measure pods so far."""
    return (there.folder / "logs/node-agent.log").read_text().count("pods are measured")


@asynccontextmanager
async def without_agent(there: Site) -> AsyncIterator[None]:
    """Kills the agent, and has it away during the block; behind it the supervisor starts it again."""
    process = there.system.supervisor.units["node-agent"].process
    command, process.command = process.command, ["/bin/sleep", "3600"]
    try:
        there.system.supervisor.kill("node-agent")
        yield
    finally:
        process.command = command
        there.system.supervisor.kill("node-agent")


@asynccontextmanager
async def without_nri(there: Site) -> AsyncIterator[None]:
    """Has the agent run with the reconciler alone during the block; both changes kill it."""
    process = there.system.supervisor.units["node-agent"].process
    env = process.env
    assert env is not None
    process.env = {**env, "KOORD_NODE_AGENT_NRI": "false"}
    try:
        there.system.supervisor.kill("node-agent")
        yield
    finally:
        process.env = env
        there.system.supervisor.kill("node-agent")


async def kill_agent(there: Site) -> None:
    """Kills the agent, and waits until the one that the supervisor starts measures pods.

    On a busy machine a start takes longer than the pause between two kills, and an agent that is never up does nothing.
    """
    before = _starts(there)
    there.system.supervisor.kill("node-agent")
    await until(lambda: _starts(there) > before, "start of the agent")


async def kill_at_intervals(there: Site, interval_s: float) -> None:
    """Kills the agent so many seconds after each of its starts, until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        await kill_agent(there)


async def records_of(there: Site, starts: Collection[Start], states: Collection[str]) -> dict[str, dict[str, Any]]:
    """Waits until all have a record in one of these states; returns them by id, as `koord node hooks` shows them."""
    ids = {start.container for start in starts}

    async def recorded() -> dict[str, dict[str, Any]]:
        text = await koord(there.system, "node", "hooks", there.node.name, "--limit=100000", "-o", "json")
        found = {each["container_id"]: each for each in json.loads(text)["containers"]}
        return {cid: found[cid] for cid in ids & found.keys() if found[cid]["state"] in states}

    result: dict[str, dict[str, Any]] = await until(recorded, "records", holds=lambda found: len(found) == len(ids))
    return result


def linux_that_the_runtime_records(node: RealNode, container: str) -> dict[str, Any]:
    """Returns the part `linux` of the OCI specification with which containerd would create the container again."""
    command: list[str | Path] = [programs().ctr, f"--address={node.folder}/containerd.sock", "--namespace=k8s.io"]
    done = subprocess.run([*command, "containers", "info", container], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["Spec"]["linux"]
    return found


def shares_that_the_runtime_records(node: RealNode, container: str) -> int:
    """Returns the CPU shares with which containerd would create the container again."""
    return int(linux_that_the_runtime_records(node, container)["resources"]["cpu"]["shares"])


def update_container(node: RealNode, container: str, *, shares: int, quota_us: int) -> None:
    """Updates a container's resources over CRI, as a kubelet does."""
    request = _CRI["UpdateContainerResourcesRequest"](
        container_id=container, linux={"cpu_shares": shares, "cpu_quota": quota_us}
    )
    with grpc.insecure_channel(f"unix://{node.folder}/containerd.sock") as channel:
        channel.unary_unary("/runtime.v1.RuntimeService/UpdateContainerResources")(
            request.SerializeToString(), timeout=30
        )
