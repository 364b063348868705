"""The permissions of a manifest suffice for the parts of a service with its own login: append, follow, store, carry
forward, request.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import asyncpg
import pytest

from cli.supervisor.supervisor import Spec, Supervisor
from shared.bus import Bus
from shared.bus.jetstream import StreamConfig, Streams
from shared.errors import KoordError
from shared.events import Draft
from shared.events.log import ConfigApplied
from shared.log.admin.followers import list_followers, list_parked
from shared.log.admin.verify import verify
from shared.log.database import Database, DatabaseDenied
from shared.log.follower import Follower
from shared.log.partition_retention import drop, expired
from shared.log.position import Position
from shared.log.reader import LogReader
from shared.log.service_store import ServiceStore
from shared.log.snapshot import pack
from shared.log.writer import LogWriter
from tests.integration.security.conftest import Secured, members
from tests.support.copier_service import CopyState
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Part(NamedTuple):
    """One service's connections."""

    name: str
    database: Database
    bus: Bus


@asynccontextmanager
async def part(secured: Secured, login: str) -> AsyncIterator[Part]:
    env = secured.env(login)
    database, bus = Database(env["KOORD_POSTGRES"]), Bus(env["KOORD_NATS"], name=login)
    await bus.start()
    try:
        yield Part(login, database, bus)
        assert bus.violations == 0, bus.refused
    finally:
        await bus.close()
        await database.close()


@asynccontextmanager
async def writing(one: Part, context: str) -> AsyncIterator[LogWriter]:
    writer = LogWriter(one.database, one.bus, context, f"{one.name}@test")
    await writer.acquire()
    await writer.begin("0", (), now_ns=time.time_ns(), seen={})
    try:
        yield writer
    finally:
        await writer.close()


@pytest.mark.parametrize("login", [one.name for one in members()])
async def test_a_service_appends_follows_stores_snapshots_and_starts_again(secured: Secured, login: str) -> None:
    (service,) = [one for one in members() if one.name == login]
    async with part(secured, login) as one:
        reader, registry = LogReader(one.database), ServiceStore(one.database, login)
        reads = dict.fromkeys(service.follows, (ConfigApplied,))
        follower = Follower(login, reader, one.bus, reads, CopyState)
        await follower.start()
        async with writing(one, service.writes) as writer:
            await writer.append([Draft(ConfigApplied(source="x", digest="d", text=login))] * 3, now_ns=time.time_ns())
            await until(lambda: follower.positions.get(service.writes, Position()).seq >= writer.head.seq)
            await writer.check_lock()
        await registry.check_readers(service.writes, ["koord.log.ConfigApplied.v1"])
        await registry.register(follower.state.positions, follower.readable)
        packed = pack(follower.state)
        for _ in range(6):
            await registry.write_snapshot(dict(follower.positions), 1, "0", packed[32:], packed[:32])
        assert len(await registry.snapshots(1)) == 3, "older ones are dropped"
        assert await registry.newest_snapshot(1, reader)
        await registry.park(service.writes, 1, "x")
        assert await registry.skips() == frozenset()
        assert await reader.last_seen(service.writes) == {}
        for context in service.follows:
            assert (await verify(reader, context)).ok
        await follower.stop()


async def test_the_operator_skips_an_event_removes_a_follower_and_reads_everything(secured: Secured) -> None:
    async with part(secured, "scheduler") as scheduler:
        async with writing(scheduler, "scheduling"):
            pass
        await ServiceStore(scheduler.database, "scheduler").park("scheduling", 1, "x")
        await ServiceStore(scheduler.database, "scheduler").register({}, {})
        async with part(secured, "operator") as operator:
            assert "scheduler" in {one.service for one in await list_parked(operator.database)}
            registry = ServiceStore(operator.database, "scheduler")
            await registry.skip("scheduling", 1, reason="x", by="me")
            assert "scheduling" not in {
                one.context for one in await list_parked(operator.database) if one.service == "scheduler"
            }
            assert await registry.forget()
            assert "scheduler" not in {one.service for one in await list_followers(operator.database)}
            assert ("scheduling", 1) in await ServiceStore(scheduler.database, "scheduler").skips()
            with pytest.raises(KoordError):
                async with operator.database.reading() as connection:
                    await connection.execute("delete from skips")


async def test_retention_drops_a_partition_under_the_writers_role_beside_readers(secured: Secured) -> None:
    owner = await asyncpg.connect(secured.owner)
    await owner.execute("update contexts set partition_rows = 50 where context = 'nodes-1'")
    await owner.execute("drop table if exists events_nodes_1_p0, events_nodes_1_p1, events_nodes_1_p2")
    async with part(secured, "action-ingest-1") as one:
        async with writing(one, "nodes-1") as writer:
            old = time.time_ns() - 90 * 86_400 * 10**9
            await writer.append([Draft(ConfigApplied(source="x", digest="d", text="t"))] * 60, now_ns=old)
            await writer.append([Draft(ConfigApplied(source="x", digest="d", text="t"))], now_ns=time.time_ns())
            assert await expired(one.database, "nodes-1", timedelta(days=30)) is None, "full since a moment ago"
            await owner.execute("update full_partitions set at = at - interval '40 days'")
            found = await expired(one.database, "nodes-1", timedelta(days=30))
            assert found is not None
            assert found.table == "events_nodes_1_p0"
            reading = owner.transaction()
            await reading.start()
            await owner.fetch("select * from events_nodes_1")
            dropping = asyncio.create_task(drop(one.database, "nodes-1", found))
            await asyncio.sleep(0.5)
            began = time.monotonic()
            await writer.append([Draft(ConfigApplied(source="x", digest="d", text="t"))], now_ns=time.time_ns())
            waited = time.monotonic() - began
            assert not dropping.done(), "retention waits for a transaction that reads the log"
            await reading.commit()
            await dropping
            assert waited < 5, "the writer does not wait with it"
        assert await owner.fetchval("select to_regclass('events_nodes_1_p0')") is None
    await owner.close()


async def test_streams_are_created_filled_and_purged_by_the_services_that_declare_them(secured: Secured) -> None:
    async with part(secured, "audit") as audit, part(secured, "auditor") as auditor:
        streams = Streams(audit.bus)
        config = StreamConfig(name="KOORD_EVENTS_SCHEDULING", subjects=("koord.event.scheduling.>",))
        await streams.ensure(config)
        await streams.publish("koord.event.scheduling.x.y", b"{}")
        last = await streams.last(config.name)
        assert last is not None
        assert last.data == b"{}"
        assert (await Streams(auditor.bus).state(config.name)).messages == 1  # type: ignore[union-attr]
        await streams.purge(config.name)
        await streams.delete(config.name)


async def test_a_wrong_password_and_a_missing_right_are_errors_that_name_the_cause_and_show_no_secret(
    secured: Secured,
) -> None:
    url = secured.env("scheduler")["KOORD_POSTGRES"]
    password = url.partition("@")[0].rpartition(":")[2]
    wrong, right = Database(url.replace(password, "sesame")), Database(url)
    with pytest.raises(DatabaseDenied, match="password authentication failed") as refused:
        await LogReader(wrong).contexts()
    assert "sesame" not in str(refused.value)
    with pytest.raises(DatabaseDenied, match="koord migrate") as denied:
        async with right.reading() as connection:
            await connection.execute("select * from events")
    assert password not in str(denied.value)
    with pytest.raises(DatabaseDenied):
        await LogWriter(wrong, None, "scheduling", "x@test").acquire()
    await wrong.close()
    await right.close()


async def test_every_service_runs_with_its_own_login_and_is_denied_nothing(
    secured: Secured, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("running")
    names = ("simulator", "scheduler", "audit")
    simulated = {"KOORD_SIMULATOR_NODES": "3", "KOORD_SIMULATOR_PODS": "5"}
    specs = [Spec(name, name, simulated if name == "simulator" else {}) for name in names]
    from cli.supervisor.audit_key import with_audit

    endpoints = await secured.servers.create_database("running")
    async with Supervisor(with_audit(specs, folder), endpoints, folder) as supervisor:
        await supervisor.wait_leading(240)
        async with asyncio.timeout(60):
            while not all(unit.status and unit.status.folded > 20 for unit in supervisor.units.values()):
                await supervisor.changed(1)
        for name, unit in supervisor.units.items():
            assert unit.status is not None
            assert unit.status.refused == "", name
            assert unit.restarts == 0, unit.why
        for unit in supervisor.units.values():
            assert unit.process.env is not None
            assert secured.owner not in unit.process.env.values()
    with contextlib.suppress(FileNotFoundError):
        assert "not permit" not in (folder / "logs" / "scheduler.log").read_text()


async def test_a_node_that_is_added_while_the_system_runs_is_accepted(secured: Secured) -> None:
    command = [sys.executable, "-m", "cli", "credentials", "node", "late.node", "--dir", str(secured.folder.parent)]
    added = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    reported, _ = await added.communicate()
    assert (added.returncode, b"late%2Enode.env" in reported) == (0, True)
    async with part(secured, "scheduler") as bystander:
        reconnects = bystander.bus.reconnects
        assert await secured.servers.mend() == []
        late = Bus(secured.env("late%2Enode")["KOORD_NATS"], name="late")
        await late.start()
        await until(lambda: late.connected)  # the server applies its users with a delay
        assert await late.publish("koord.node.late%2Enode.report", b"x")
        await late.close()
        assert bystander.bus.reconnects == reconnects, "no other client is disconnected"
