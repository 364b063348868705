"""Checkpoints of the audit service, and their proof that a log was altered with SQL.

One system runs for all tests. Those that alter a log have a copy of its database each, made after its services ended.
"""

import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest
import pytest_asyncio
from click.testing import Result

from cli.embedded.postgres import DATABASE
from services.audit.checkpoint_signing import BadKey, Signer, check, generate, public_file
from shared.bus import Bus
from shared.log.checkpoint import BadCheckpoint, Checkpoint, read_checkpoints, read_statement
from shared.log.hash_chain import Chain
from tests.integration.audit.system import System

on_one_system = pytest.mark.asyncio(loop_scope="module")
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def system(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[System]:
    async with System(tmp_path_factory.mktemp("audit")) as running:

        def has_seen_the_cluster() -> bool:
            newest = running.checkpoints / "checkpoint.json"
            heads = read_statement(read_checkpoints(newest.read_bytes())[0].statement).heads if newest.exists() else {}
            return "cluster" in heads and heads["cluster"].seq > 20

        await running.wait(has_seen_the_cluster)
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended(system: System) -> System:
    """The system after its services have ended: only tests alter logs from here on."""
    await system.supervisor.stop()
    return system


class Altered(NamedTuple):
    """A copy of the database, which a test alters.

    Attributes:
        file: a copy of the newest checkpoint.
        heads: the heads in its statement.
    """

    system: System
    database: str
    connection: asyncpg.Connection
    file: Path
    heads: dict[str, Any]

    async def koord(self, *arguments: str) -> Result:
        """Runs a command on the copy."""
        return await self.system.koord(*arguments, database=self.database)


def kept(system: System, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Copies the newest checkpoint; returns the copy with the heads in its statement."""
    copy = folder / "kept.json"
    shutil.copy(system.checkpoints / "checkpoint.json", copy)
    return copy, read_statement(json.loads(copy.read_text())["statement"]).heads


@pytest_asyncio.fixture(loop_scope="module")
async def log(ended: System, tmp_path: Path) -> AsyncIterator[Altered]:
    name = f"altered_{next(_numbers)}"
    connection = await asyncpg.connect(await ended.postgres.create_database(name, DATABASE))
    yield Altered(ended, name, connection, *kept(ended, tmp_path))
    await connection.close()


@on_one_system
async def test_requests_for_old_events_are_served_from_the_log(system: System) -> None:
    bus = Bus(system.auditor["KOORD_NATS"], name="auditor")
    await bus.start()

    async def read_old_events(context: str, request: bytes) -> list[dict[str, Any]]:
        response = await bus.request(f"koord.log.read.{context}", request, deadline_s=10)
        return [json.loads(line) for line in response.splitlines()]

    span, *events = await read_old_events("cluster", b'{"from": 2, "limit": 5}')
    assert [event["id"] for event in events] == [f"cluster/{seq}" for seq in range(2, 7)]
    assert (span["oldest"], span["next"]) == (1, 7)
    seq, seen = 1, 0
    while seq <= span["head"]:
        part, *events = await read_old_events("cluster", json.dumps({"from": seq, "limit": 1000}).encode())
        seen, seq = seen + len(events), part["next"]
    assert seen >= span["head"]
    assert len(await read_old_events("cluster", json.dumps({"from": part["head"] + 1000}).encode())) == 1
    assert "request {" in (await read_old_events("cluster", b"[]"))[0]["error"]
    assert "no context nothing" in (await read_old_events("nothing", b""))[0]["error"]
    await bus.close()


@on_one_system
async def test_a_checkpoint_is_in_the_log_the_table_the_folder_and_the_config_map(system: System) -> None:
    connection = await asyncpg.connect(system.owner)

    async def agrees() -> bool:
        row = await connection.fetchrow("select * from checkpoints order by seq desc limit 1")
        found = await connection.fetchval("select count(*) from events_cluster where type like '%DesiredStateApplied%'")
        return row is not None and found > 1

    await system.wait(agrees)
    await system.supervisor.stop()
    [newest] = read_checkpoints((system.checkpoints / "checkpoint.json").read_bytes())
    check(newest)
    row = await connection.fetchrow("select * from checkpoints order by seq desc limit 1")
    event = json.loads(
        await connection.fetchval("select data from events where context = 'audit' and seq = $1", row["seq"])
    )
    assert newest.statement == row["statement"] == event["statement"]
    days = [line for file in system.checkpoints.glob("*.jsonl") for line in read_checkpoints(file.read_bytes())]
    assert days[-1] == newest
    assert len(days) == await connection.fetchval("select count(*) from checkpoints")
    assert len({day.statement for day in days}) == len(days)
    intent = json.loads(
        await connection.fetchval(
            "select data from events_audit where type like '%ObjectDesired%' order by seq desc limit 1"
        )
    )
    assert intent["name"] == "koordinator-system/koordstream-checkpoint"
    assert json.loads(intent["body"]["data"]["checkpoint.json"])["statement"] == newest.statement
    await connection.close()


@on_one_system
async def test_an_untouched_log_agrees_with_all_its_checkpoints(ended: System) -> None:
    [day] = ended.checkpoints.glob("*.jsonl")
    for file in (day, ended.checkpoints / "checkpoint.json"):
        found = await ended.koord(
            "audit", "verify", "--checkpoint", str(file), "--key", str(ended.public_key), "-o", "json"
        )
        assert found.exit_code == 0, found.output
        verified = {one["context"]: one for one in json.loads(found.stdout)}
        assert verified["cluster"]["compared"] >= 1
        assert verified["audit"]["ok"]


@on_one_system
async def test_a_log_cut_short_in_sql_is_noticed(log: Altered) -> None:
    cut = log.heads["cluster"].seq - 3
    await log.connection.execute("delete from events_cluster where seq > $1", cut)
    assert (await log.koord("audit", "verify")).exit_code == 0, "the chain alone still fits"
    found = await log.koord("audit", "verify", "--checkpoint", str(log.file))
    assert found.exit_code == 1
    assert f"cluster/{cut + 1} is missing" in found.output
    assert "cut short" in found.output


@on_one_system
async def test_a_log_that_was_emptied_or_removed_is_noticed(log: Altered) -> None:
    await log.connection.execute("delete from events_cluster")
    found = await log.koord("audit", "verify", "--log", "cluster", "--checkpoint", str(log.file))
    assert "cluster/1 is missing" in found.output
    await log.connection.execute("drop table events_cluster")
    await log.connection.execute("delete from contexts where context = 'cluster'")
    found = await log.koord("audit", "verify", "--checkpoint", str(log.file))
    assert "this log, and it is gone" in found.output


@on_one_system
async def test_a_row_that_was_altered_is_named(log: Altered) -> None:
    row = log.heads["cluster"].seq - 5
    await log.connection.execute("update events_cluster set actor = 'somebody else' where seq = $1", row)
    found = await log.koord("audit", "verify", "--checkpoint", str(log.file))
    assert found.exit_code == 1
    assert f"cluster/{row} " in found.output


@on_one_system
async def test_rows_that_were_rewritten_with_their_digests_are_noticed(log: Altered) -> None:
    first = log.heads["cluster"].seq - 5
    digest = await log.connection.fetchval("select digest from events_cluster where seq = $1", first - 1)
    await log.connection.execute("update events_cluster set key = 'forged' where seq = $1", first)
    rows = await log.connection.fetch(
        "select *, (extract(epoch from at) * 1000000)::bigint as at_us from events_cluster where seq >= $1 order by seq",
        first,
    )
    for row in rows:
        chain = Chain("cluster", digest, at_us=row["at_us"], actor=row["actor"])
        digest = chain.add(
            row["seq"], row["type"], row["schema"], row["key"], row["cause"], row["correlation"], row["data"]
        )
        await log.connection.execute("update events_cluster set digest = $1 where seq = $2", digest, row["seq"])
    assert (await log.koord("audit", "verify")).exit_code == 0, "the chain alone still fits"
    found = await log.koord("audit", "verify", "--checkpoint", str(log.file))
    assert found.exit_code == 1
    assert f"cluster/{log.heads['cluster'].seq} is not what a checkpoint recorded" in found.output
    [day] = log.system.checkpoints.glob("*.jsonl")
    found = await log.koord("audit", "verify", "--checkpoint", str(day))
    assert "were rewritten" in found.output


@on_one_system
async def test_a_checkpoint_of_another_key_or_an_altered_one_is_rejected(ended: System, tmp_path: Path) -> None:
    file, heads = kept(ended, tmp_path)
    generate(tmp_path / "other.key")
    other = ("audit", "verify", "--checkpoint", str(file), "--key", str(tmp_path / "other.pub"))
    assert "not by the key that was given" in (await ended.koord(*other)).output
    [signed] = read_checkpoints(file.read_bytes())
    seq = heads["cluster"].seq
    altered = signed.statement.replace(f"cluster {seq} ", f"cluster {seq - 4} ")
    file.write_text(json.dumps({"statement": altered, "public_key": signed.public_key, "signature": signed.signature}))
    found = await ended.koord("audit", "verify", "--checkpoint", str(file))
    assert "does not fit its statement" in found.output


def test_a_key_that_others_can_read_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "audit.key"
    signer = generate(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert public_file(file).exists()
    assert Signer.load(file).public_key == signer.public_key
    with pytest.raises(FileExistsError):
        generate(file)
    file.chmod(0o644)
    with pytest.raises(BadKey, match="chmod 600"):
        Signer.load(file)
    with pytest.raises(BadKey, match="koord audit keygen"):
        Signer.load(tmp_path / "absent.key")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_key_of_another_owner_may_be_readable_by_our_group_only(tmp_path: Path) -> None:
    """As the files of a Kubernetes Secret are mounted: they belong to root, and to the pod's group."""
    file = tmp_path / "audit.key"
    signer = generate(file)
    os.chown(file, 10001, -1)
    file.chmod(0o440)
    assert Signer.load(file).public_key == signer.public_key
    file.chmod(0o444)
    with pytest.raises(BadKey, match="chmod 600"):
        Signer.load(file)


@pytest.mark.parametrize(
    "text", ["", "{}", "koordstream checkpoint 2\n", "koordstream checkpoint 1\nsource x\nat y\ncluster 1\n"]
)
def test_a_text_that_is_no_checkpoint_is_rejected(text: str) -> None:
    with pytest.raises(BadCheckpoint):
        read_statement(text)
    with pytest.raises(BadCheckpoint):
        read_checkpoints(text.encode())
    with pytest.raises(BadCheckpoint):
        check(Checkpoint(text, "AAAA", "AAAA"))
