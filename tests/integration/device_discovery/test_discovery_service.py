"""Device discovery as a process on real servers: an inventory becomes a Device, and pods follow it."""

import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from cli.doctor.check_rejected_messages import about_rejected
from cli.embedded import EmbeddedNats
from cli.simulate.simulator_client import SimulatedApi
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.agents import device_inventory, receipt, subjects
from shared.agents.device_inventory import DeviceFound, Devices
from shared.agents.receipt import Receipt
from shared.bus import Bus
from shared.events import Event
from shared.events.cluster import NodeObserved
from shared.events.devices import DEVICE_EVENTS, DeviceAppeared, DeviceDisappeared
from shared.events.intents import ObjectDesired
from tests.support.discovery_log import gpu, sick
from tests.support.ingest_process import IngestSystem, stage
from tests.support.pods import written_pod
from tests.support.scheduling_world import node
from tests.support.waiting import PATIENCE_S, until

SPECS = (Spec("device-discovery", "device-discovery"),)
VENDOR = {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "H100"}


class Agent:
    """The agent of a node, as far as it sends inventories."""

    def __init__(self, bus: Bus, name: str = "n1") -> None:
        self._bus = bus
        self._numbers = itertools.count(1)
        self.name = name

    async def report(self, *devices: DeviceFound, at_ns: int = 0, **content: Any) -> Receipt:
        """Sends an inventory; returns the receipt."""
        data = device_inventory.encode(
            node=self.name,
            boot="b",
            seq=next(self._numbers),
            at_ns=at_ns or time.time_ns(),
            devices=Devices(devices, **content),
        )
        return await self.send(data)

    async def send(self, data: bytes) -> Receipt:
        """Sends a message; returns the receipt."""
        where = subjects.subject(self.name, subjects.INVENTORY)
        return receipt.decode(await self._bus.request(where, data, deadline_s=15))


async def test_an_accepted_inventory_is_in_the_log_once_even_after_a_kill_and_a_rejected_one_is_shown(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, specs=SPECS) as on:
        agent = Agent(on.bus)
        assert (await agent.report(gpu(0))).waits, "an inventory of a node that is not known yet waits for it"
        await on.observe(NodeObserved(node="n1", object=node("n1")))
        await until(lambda: desired(on), holds=len)
        assert (await agent.report(gpu(0), gpu(1))).accepted
        on.supervisor.kill("device-discovery")
        assert (await until_answered(agent, gpu(0), gpu(1))).accepted
        assert (await agent.report(gpu(0))).accepted
        found = [(type(event), event.key) for event in await on.events("devices-0", *DEVICE_EVENTS)]
        assert found == [
            (DeviceAppeared, "n1/gpu/0"),
            (DeviceAppeared, "n1/gpu/1"),
            (DeviceDisappeared, "n1/gpu/1"),
        ]
        await until(lambda: desired(on), holds=lambda bodies: len(bodies[-1]["spec"]["devices"]) == 1)
        assert "ahead of our clock" in (await agent.report(at_ns=time.time_ns() + 120 * 10**9)).refused
        assert "MessagePack" in (await agent.send(b"\xc1")).refused

        def named() -> str:
            statuses = {name: unit.status for name, unit in on.supervisor.units.items()}
            return "\n".join(finding.what for finding in about_rejected(statuses, ()))

        await until(named, holds=lambda text: "koord.node.n1.inventory" in text)


async def until_answered(agent: Agent, *devices: DeviceFound) -> Receipt:
    """Repeats an inventory until the service has started again, and has it in its log."""

    async def sent() -> Receipt | None:
        try:
            return await agent.report(*devices)
        except Exception:  # noqa: BLE001  nobody answers yet
            return None

    found = await until(sent, holds=lambda response: response is not None and response.accepted)
    assert found is not None
    return found


async def desired(on: IngestSystem) -> list[dict[str, Any]]:
    """Returns the Devices that the log desires, in order."""
    events: list[Event] = await on.events("devices-0", ObjectDesired)
    return [event.body for event in events if isinstance(event, ObjectDesired) and event.body is not None]


class Simulated:
    """A simulated cluster with the services between an inventory and a placement."""

    def __init__(self, api: SimulatedApi, agent: Agent) -> None:
        self.api = api
        self.agent = agent

    async def device(self) -> dict[str, Any] | None:
        """Returns the node's Device."""
        found = await self.api.list("scheduling.koordinator.sh/v1alpha1", "Device")
        return found[0] if found else None

    async def health(self) -> list[bool]:
        """Returns the health of each of the node's devices."""
        return [device["health"] for device in ((await self.device()) or {}).get("spec", {}).get("devices", [])]

    async def allocatable(self) -> dict[str, str]:
        """Returns the node's allocatable."""
        (found,) = await self.api.list("v1", "Node")
        amounts: dict[str, str] = found["status"]["allocatable"]
        return amounts

    async def pod(self, name: str) -> dict[str, Any]:
        """Creates a pod that requests a whole GPU; waits until it is bound or unschedulable. Returns it."""
        body = written_pod(name, namespace="default", requests={"koordinator.sh/gpu": "100"}, container={"image": "i"})
        limits = {"limits": {"koordinator.sh/gpu": "100"}}
        body["spec"]["containers"][0]["resources"] |= limits
        body["spec"]["schedulerName"] = "koord-scheduler"
        made = await self.api.create(body)

        async def decided() -> dict[str, Any] | None:
            found = await self.api.get(made)
            conditions = {one["type"]: one["status"] for one in found["status"].get("conditions", [])}
            return found if conditions.get("PodScheduled") else None

        pod: dict[str, Any] | None = await until(decided, holds=bool)
        assert pod is not None
        return pod


@asynccontextmanager
async def simulated(database: str, nats: EmbeddedNats, folder: Path) -> AsyncIterator[Simulated]:
    names = ("simulator", "scheduler", "slo-controller", "device-discovery")
    async with AsyncExitStack() as running:
        specs = [Spec(name, name, {}) for name in names]
        supervisor = Supervisor(specs, Endpoints(database, nats.url), folder, env={"KOORD_SIMULATOR_NODES": "0"})
        running.push_async_callback(supervisor.stop)
        await supervisor.start()
        await supervisor.wait_until(lambda unit: unit.state == "leading", 240, "leading")
        bus = Bus(nats.url, name="test")
        await bus.start()
        running.push_async_callback(bus.close)
        api = SimulatedApi(bus, deadline_s=PATIENCE_S)
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        await api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n1"},
                "status": {"capacity": amounts, "allocatable": amounts},
            }
        )
        yield Simulated(api, Agent(bus))


async def test_pods_follow_the_health_of_reported_devices(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with simulated(database, nats, tmp_path) as on:
        assert not (await on.agent.report(gpu(0), gpu(1), labels=VENDOR)).refused, "it may wait until its node is read"
        await until(on.allocatable, holds=lambda amounts: amounts.get("koordinator.sh/gpu") == "200")
        (found,) = await on.api.list("v1", "Node")
        assert VENDOR.items() <= found["metadata"]["labels"].items()
        assert (await on.pod("first"))["spec"]["nodeName"] == "n1"
        # One card is taken, the other fails: the next pod waits although the node is otherwise empty.
        taken = await minors(on, "first")
        free = next(minor for minor in (0, 1) if minor not in taken)
        reported_s = time.monotonic()
        assert not (await on.agent.report(*(sick(m) if m == free else gpu(m) for m in (0, 1)), labels=VENDOR)).refused
        await until(on.health, holds=lambda health: False in health)
        print(f"unhealthy in the Device after {time.monotonic() - reported_s:.3f} s")
        late = await on.pod("late")
        assert not late["spec"].get("nodeName")
        await until(on.allocatable, holds=lambda amounts: amounts.get("koordinator.sh/gpu") == "100")
        # It is back: the waiting pod gets it.
        assert not (await on.agent.report(gpu(0), gpu(1), labels=VENDOR)).refused
        await until(lambda: on.api.get(late), holds=lambda pod: pod["spec"].get("nodeName") == "n1")
        # The node leaves, and its Device with it.
        await on.api.delete(found)
        await until(on.device, holds=lambda device: device is None)


async def minors(on: Simulated, name: str) -> list[int]:
    """Returns the minors of the GPUs that a pod has."""
    pods = await on.api.list("v1", "Pod")
    annotations = next(pod for pod in pods if pod["metadata"]["name"] == name)["metadata"]["annotations"]
    return [device["minor"] for device in json.loads(annotations["scheduling.koordinator.sh/device-allocated"])["gpu"]]
