"""`koord bench discovery`: cost of a fleet's inventories for device discovery, from an agent's request to its receipt.

The nodes are in the log before. Inventories are made and sent by a process of their own, as requests over NATS. Nothing
changes but two odd nodes: one reports more cards than an inventory may have, and is refused each second; a card of the
other fails and recovers each second.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec
import uvloop

from cli.bench.inventory_senders import CROWDED, FLAPPING, send
from cli.bench.process_costs import Servers, peak_bytes, reply
from cli.bench.report_senders import MIB, node_name
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.processes.child_process import Process
from cli.service_list import contexts
from cli.terminal.output import show_table
from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Draft
from shared.events.cluster import NodeObserved
from shared.events.devices import DEVICE_EVENTS
from shared.events.intents import ObjectDesired
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.log.database import Database
from shared.log.migration import migrate
from shared.log.writer import LogWriter

CONTEXT = "devices-0"
DECIDED_S = 900.0
"""The Devices of all nodes are decided within this time."""


class DiscoveryFigures(msgspec.Struct, frozen=True):
    """The figures that `--json` prints.

    Attributes:
        discovery_cores, postgres_cores, nats_cores: cpu of each (children counted) for an inventory of each node once a
            minute, in cores; the odd nodes are part of it.
        first_s: from the first inventory of a fleet of which nothing is recorded to the receipt of the last one.
        devices_first_s: until the Device of each node is desired.
        events: events about devices recorded while nothing but the odd nodes changed.
        accepted, refused: inventories in the measured time; `refused` are those of the node with too many cards.
        changes: of the node whose card fails and recovers.
        rss_mib: largest resident memory of device discovery.
        inventory_bytes: size of an inventory as sent.
    """

    discovery_cores: float
    postgres_cores: float
    nats_cores: float
    first_s: float
    devices_first_s: float
    accepted: int
    refused: int
    changes: int
    events: int
    rss_mib: int
    inventory_bytes: int
    nodes: int
    cards: int
    seconds: float
    load_1m: float


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=1_000, show_default=True, help="Nodes that report.")
@click.option("--cards", type=click.IntRange(0, 1_024), default=8, show_default=True, help="GPUs of each.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="How long one inventory a minute and node is measured.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def discovery(*, nodes: int, cards: int, seconds: float, as_json: bool) -> None:
    """Measure the cost of a fleet's inventories for device discovery.

    First the time until all cards of a new fleet are recorded, then cpu at one inventory a minute and node, beside a
    node with too many cards and one whose card fails and recovers each second.

    Device discovery, the sender, Postgres and NATS are processes of their own on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="koord-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may run as another user
        figures = uvloop.run(_measure(folder, nodes, cards, seconds))
    if as_json:
        click.echo(msgspec.json.encode(figures))
    else:
        show_table(("figure", "value"), [(name, str(value)) for name, value in msgspec.structs.asdict(figures).items()])


async def _measure(folder: Path, nodes: int, cards: int, seconds: float) -> DiscoveryFigures:
    load_1m = os.getloadavg()[0]
    async with EmbeddedPostgres(folder / "postgres") as postgres, EmbeddedNats(folder / "nats") as nats:
        database = Database(postgres.url)
        await _observed(database, nats, nodes)
        environment = {**os.environ, "KOORD_POSTGRES": postgres.url, "KOORD_NATS": nats.url, "KOORD_MQTT": ""}
        command = [sys.executable, "-P", "-m", "cli", "run", "device-discovery"]
        process = Process("device-discovery", command, folder / "discovery.log", env=environment)
        process.start()
        try:
            return await _driven(Servers(process, postgres, nats), database, nodes, cards, seconds, load_1m)
        finally:
            await asyncio.to_thread(process.stop)
            await database.close()


async def _observed(database: Database, nats: EmbeddedNats, nodes: int) -> None:
    """Makes a log in which the nodes are observed."""
    await migrate(database, contexts(1))
    bus = Bus(nats.url, name="bench")
    await bus.start()
    click.echo(f"observing {nodes:,} nodes", err=True)
    writer = LogWriter(database, bus, "cluster", "bench")
    await writer.acquire()
    await writer.begin("bench", (), now_ns=time.time_ns(), seen={})
    names = [*map(node_name, range(nodes)), FLAPPING, CROWDED]
    for first in range(0, len(names), 1_000):
        observed = [
            NodeObserved(node=name, object=Node(metadata=Metadata(name=name, uid=f"uid-{name}")))
            for name in names[first : first + 1_000]
        ]
        await writer.append([Draft(event) for event in observed], now_ns=time.time_ns(), seen={})
    await writer.close()
    await bus.close()


async def _driven(
    servers: Servers, database: Database, nodes: int, cards: int, seconds: float, load_1m: float
) -> DiscoveryFigures:
    pipe, theirs = multiprocessing.get_context("spawn").Pipe()
    sender = multiprocessing.get_context("spawn").Process(
        target=send, args=(theirs, servers.nats.url, nodes, cards), daemon=True
    )
    sender.start()
    click.echo("the first inventory of each node, as fast as they are answered", err=True)
    began = time.monotonic()
    first_s: float = await reply(pipe, ("first", 0))
    await _until_desired(database, nodes + 1)
    devices_first_s = time.monotonic() - began
    recorded = await _count(database, *(kind.type_name() for kind in DEVICE_EVENTS))
    click.echo(f"an inventory of each node a minute, for {seconds:g} s", err=True)
    before = servers.cpu_s()
    accepted, refused, changes, inventory_bytes = await reply(pipe, ("steady", seconds))
    cores = [round((now - then) / seconds, 3) for now, then in zip(servers.cpu_s(), before, strict=True)]
    pipe.send(None)
    if not refused:
        raise KoordError(f"node {CROWDED}: its inventory has too many cards and is accepted")
    return DiscoveryFigures(
        discovery_cores=cores[0],
        postgres_cores=cores[1],
        nats_cores=cores[2],
        first_s=round(first_s, 3),
        devices_first_s=round(devices_first_s, 3),
        accepted=accepted,
        refused=refused,
        changes=changes,
        events=await _count(database, *(kind.type_name() for kind in DEVICE_EVENTS)) - recorded,
        rss_mib=peak_bytes(servers.service) // MIB,
        inventory_bytes=inventory_bytes,
        nodes=nodes,
        cards=cards,
        seconds=seconds,
        load_1m=load_1m,
    )


async def _until_desired(database: Database, nodes: int) -> None:
    async with asyncio.timeout(DECIDED_S):
        while await _count(database, ObjectDesired.type_name()) < nodes:
            await asyncio.sleep(0.2)


async def _count(database: Database, *types: str) -> int:
    """Returns the number of events of some types in the service's context."""
    sql = "select count(*) from events where context = $1 and type = any($2::text[])"
    async with database.reading() as connection:
        return int(await connection.fetchval(sql, CONTEXT, list(types)))
