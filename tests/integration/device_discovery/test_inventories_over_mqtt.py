"""Inventories to device discovery on two shards: over MQTT, by NATS' own listener and by Mosquitto, and over NATS after
a change of the number of shards.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiomqtt import Client

from cli.embedded import EmbeddedNats
from cli.service_list import contexts
from cli.supervisor.supervisor import Spec
from shared.agents import device_inventory, receipt, subjects
from shared.agents.device_inventory import DeviceFound, Devices
from shared.events import Event
from shared.events.cluster import NodeDeleted, NodeObserved
from shared.events.devices import DEVICE_EVENTS, NodeDevicesRemoved
from shared.events.intents import ObjectDesired
from shared.kube.resource_names import DEVICES
from shared.log.database import Database
from shared.log.migration import migrate
from shared.runtime.sharding import shard_of
from tests.support.discovery_log import gpu
from tests.support.ingest_process import IngestSystem, stage
from tests.support.mosquitto import Mosquitto
from tests.support.scheduling_world import node
from tests.support.waiting import until

SHARDS = 2
NODES = tuple(f"rack.{number}" for number in range(6))
SPECS = tuple(Spec(f"device-discovery-{shard}", "device-discovery", {"KOORD_SHARD": str(shard)}) for shard in range(2))


@pytest.fixture(params=["nats", "mosquitto"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The url of a broker of its own, apart from the bus."""
    if request.param == "nats":
        async with EmbeddedNats(tmp_path / "broker") as server:
            yield server.mqtt_url
        return
    mosquitto = Mosquitto(tmp_path / "broker")
    await asyncio.to_thread(mosquitto.start)
    yield mosquitto.url
    await asyncio.to_thread(mosquitto.stop)


@asynccontextmanager
async def agent(broker: str) -> AsyncIterator[Client]:
    host, _, port = broker.removeprefix("mqtt://").partition(":")
    async with Client(host, int(port), identifier="agents", clean_session=False, timeout=15) as client:
        yield client


def inventory(name: str, *devices: DeviceFound, seq: int = 1, at_ns: int = 0) -> bytes:
    content = Devices(devices)
    return device_inventory.encode(node=name, boot="b", seq=seq, at_ns=at_ns or time.time_ns(), devices=content)


async def prepare(database: str) -> None:
    """Makes the contexts of all shards."""
    connection = Database(database)
    await migrate(connection, contexts(SHARDS))
    await connection.close()


async def recorded(on: IngestSystem, *kinds: type[Event]) -> list[set[str]]:
    """Returns the keys of the events of each shard."""
    return [{event.key for event in await on.events(f"devices-{shard}", *kinds)} for shard in range(SHARDS)]


async def test_each_shard_records_the_inventories_of_its_nodes_also_those_sent_while_it_was_away(
    broker: str, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    await prepare(database)
    env = {"KOORD_METRICS_SHARDS": str(SHARDS)}
    async with stage(database, nats, tmp_path, mqtt=broker, specs=SPECS, env=env) as on, agent(broker) as client:
        await on.observe(*(NodeObserved(node=name, object=node(name)) for name in NODES))
        expected = [{f"{name}/gpu/0" for name in NODES if shard_of(name, SHARDS) == shard} for shard in range(SHARDS)]
        assert all(expected)

        async def sent() -> list[set[str]]:
            for name in NODES:
                await client.publish(subjects.topic(name, subjects.INVENTORY), inventory(name, gpu(0)), qos=1)
            return await recorded(on, *DEVICE_EVENTS)

        await until(sent, holds=lambda found: found == expected)
        on.supervisor.kill("device-discovery-0")
        for name in NODES:
            data = inventory(name, gpu(0), gpu(1), seq=2)
            await client.publish(subjects.topic(name, subjects.INVENTORY), data, qos=1)
        both = [keys | {key.replace("gpu/0", "gpu/1") for key in keys} for keys in expected]
        await until(lambda: recorded(on, *DEVICE_EVENTS), holds=lambda found: found == both)
        objects = [{name for name in NODES if shard_of(name, SHARDS) == shard} for shard in range(SHARDS)]

        async def devices() -> list[set[str]]:
            found = [await on.events(f"devices-{shard}", ObjectDesired) for shard in range(SHARDS)]
            return [
                {each.name for each in of if isinstance(each, ObjectDesired) and each.resource == DEVICES}
                for of in found
            ]

        await until(devices, holds=lambda found: found == objects)
        await client.subscribe(subjects.topic(NODES[0], subjects.REFUSED), qos=1)
        ahead = inventory(NODES[0], gpu(0), seq=3, at_ns=time.time_ns() + 120 * 10**9)
        await client.publish(subjects.topic(NODES[0], subjects.INVENTORY), ahead, qos=1)
        message = await anext(aiter(client.messages))
        assert "ahead of our clock" in receipt.decode(bytes(message.payload)).refused


async def test_a_node_changes_shards_with_their_number_and_its_device_is_desired_by_the_new_one_alone(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    await prepare(database)
    name = next(name for name in NODES if shard_of(name, SHARDS) == 1)

    async def of(on: IngestSystem, shard: int) -> list[tuple[str, bool]]:
        """Returns what a shard recorded: that the Device is desired to exist or not, and that the node moved."""
        found = await on.events(f"devices-{shard}", ObjectDesired, NodeDevicesRemoved)
        return [
            ("desired", each.body is not None) if isinstance(each, ObjectDesired) else ("moved", each.moved)
            for each in found
            if isinstance(each, ObjectDesired | NodeDevicesRemoved) and each.key.endswith(name)
        ]

    async with stage(database, nats, tmp_path / "one", specs=SPECS[:1]) as on:
        await on.observe(NodeObserved(node=name, object=node(name)))
        sent = await on.send(subjects.subject(name, subjects.INVENTORY), inventory(name, gpu(0)))
        assert not sent.refused, "it may wait until its node is read"
        await until(lambda: of(on, 0), holds=lambda found: found == [("desired", True)])
    async with stage(database, nats, tmp_path / "two", specs=SPECS, env={"KOORD_METRICS_SHARDS": str(SHARDS)}) as on:
        await until(lambda: of(on, 0), holds=lambda found: found == [("desired", True), ("moved", True)])
        sent = await on.send(subjects.subject(name, subjects.INVENTORY), inventory(name, gpu(0), seq=2))
        assert not sent.refused
        await until(lambda: of(on, 1), holds=lambda found: found == [("desired", True)])
        await on.observe(NodeDeleted(node=name, node_uid=node(name).metadata.uid))
        await until(lambda: of(on, 1), holds=lambda found: ("desired", False) in found)
        assert await of(on, 0) == [("desired", True), ("moved", True)]
