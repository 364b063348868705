"""Services as processes with the simulator in place of a cluster, and a client of its API."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from cli.embedded import EmbeddedNats
from cli.simulate.simulator_client import SimulatedApi, SimulatorRefused
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.bus import Bus
from shared.events.log import ConfigRejected
from shared.log.database import Database
from shared.log.reader import LogReader


@asynccontextmanager
async def simulated_services(
    database: str,
    nats: EmbeddedNats,
    folder: Path,
    specs: Sequence[Spec],
) -> AsyncIterator[tuple[Supervisor, SimulatedApi]]:
    """Runs the services until they lead, with a snapshot and a rebuild each second."""
    env = {"KOORD_SNAPSHOT_INTERVAL_S": "1", "KOORD_REBUILD_INTERVAL_S": "1"}
    async with AsyncExitStack() as running:
        bus = Bus(nats.url, name="test")
        await bus.start()
        running.push_async_callback(bus.close)
        supervisor = Supervisor(specs, Endpoints(database, nats.url), folder, env=env)
        running.push_async_callback(supervisor.stop)
        await supervisor.start()
        await supervisor.wait_leading(240)
        yield supervisor, SimulatedApi(bus)


async def store_config_map(api: SimulatedApi, name: str, data: Mapping[str, str]) -> None:
    """Creates a ConfigMap of koordinator-system, or changes its keys."""
    place = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "koordinator-system"}}
    try:
        await api.create({**place, "data": data})
    except SimulatorRefused:
        await api.patch(place, {"data": data})


async def rejected_paths(database: str, context: str) -> list[str]:
    """Returns the paths of the configuration that a service rejected, in order."""
    opened = Database(database)
    try:
        rows = [row async for row in LogReader(opened).rows(context=context, kind="ConfigRejected")]
    finally:
        await opened.close()
    return [msgspec.json.decode(row.data, type=ConfigRejected).path for row in rows]
