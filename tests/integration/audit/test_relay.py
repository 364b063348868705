"""The relay against a real NATS that restarts, is wiped, has other publishers, and with a log that is restored or
truncated."""

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from cli.embedded import EmbeddedNats
from services.audit.settings import AuditSettings
from shared.bus.jetstream import StreamConfig
from shared.events.cluster import ObjectObserved
from shared.log.database import Database
from tests.integration.audit.relaying import STREAM, Relaying, counted, seq_of
from tests.support.log_system import Writer
from tests.support.waiting import until


async def test_every_event_is_stored_once_in_order_as_a_cloud_event(relaying: Relaying) -> None:
    await relaying.append(1_200)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.append(30)
    await relaying.wait_for_head()
    held = await relaying.holds()
    assert [seq_of(message) for message in held] == counted(relaying.upto)
    last = held[-1]
    assert last.subject == "koord.event.cluster.koord.cluster.PodBound.v1.a%2Eb/x-29"
    event = json.loads(last.data)
    [row] = [row async for row in relaying.reader.rows(context="cluster", after=relaying.upto - 1)]
    assert event.pop("data") == json.loads(row.data)
    assert event == {
        "specversion": "1.0", "id": f"cluster/{row.seq}", "source": "koordstream", "type": row.type, "subject": row.key,
        "time": f"{row.at:%Y-%m-%dT%H:%M:%S.%fZ}", "datacontenttype": "application/json", "seq": str(row.seq), "schema": 1,
        "actor": row.actor, "digest": row.digest.hex(),
    }  # fmt: skip
    assert last.data.endswith(b',"data":' + row.data + b"}")


async def test_a_relay_that_is_killed_continues_at_the_end_of_the_stream(relaying: Relaying) -> None:
    await relaying.append(3_000)
    for share in (500, 1_500):
        relaying.start()
        await relaying.wait_until_published(share)
        await relaying.stop()
    relaying.start()
    await relaying.wait_for_head()
    assert relaying.relay.rebuilds == 0
    assert await relaying.seqs() == counted(relaying.upto)


async def test_nothing_is_lost_when_nats_is_killed_under_load(relaying: Relaying, server: EmbeddedNats) -> None:
    relaying.start()
    await relaying.append(1_000)
    await server.kill()
    await relaying.append(1_000)
    await server.start()
    await relaying.append(1_000)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)


async def test_a_stream_that_is_purged_or_deleted_fills_again(relaying: Relaying) -> None:
    await relaying.append(700)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.streams.purge(STREAM)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)
    await relaying.streams.delete(STREAM)
    await relaying.append(10)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)


async def test_a_stream_that_is_purged_while_events_come_fills_again_from_the_first(relaying: Relaying) -> None:
    relaying.start()
    await relaying.append(300)
    await relaying.wait_for_head()
    await relaying.streams.purge(STREAM)
    await relaying.append(300, size=1)
    await until(lambda: relaying.relay.rebuilds + 1 and _filled(relaying))
    assert await relaying.seqs() == counted(relaying.upto)


async def _filled(relaying: Relaying) -> bool:
    state = await relaying.streams.state(STREAM)
    return state is not None and state.messages == relaying.upto


async def test_a_message_that_was_deleted_from_the_middle_is_published_again(
    relaying: Relaying, server: EmbeddedNats
) -> None:
    await relaying.append(100)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.streams.purge(STREAM, "koord.event.cluster.koord.cluster.PodBound.v1.a%2Eb/x-50")
    await until(lambda: relaying.relay.rebuilds == 1)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)


async def test_a_second_publisher_is_detected_and_its_message_removed(relaying: Relaying) -> None:
    await relaying.append(100)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.streams.publish("koord.event.cluster.forged", b'{"id":"cluster/9999","digest":"00"}')
    await relaying.append(100)
    await until(lambda: relaying.relay.rebuilds >= 1)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)


async def test_a_forged_event_at_the_end_of_an_idle_stream_is_removed(relaying: Relaying) -> None:
    await relaying.append(10)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.streams.publish("koord.event.cluster.forged", (await relaying.holds())[3].data)
    await until(lambda: relaying.relay.rebuilds >= 1)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)


async def test_a_restored_log_rebuilds_its_stream(relaying: Relaying, database: str, writer: Writer) -> None:
    await relaying.append(200)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.stop()
    await writer.close()
    opened = Database(database)
    async with opened.transaction() as connection:
        await connection.execute("delete from events_cluster where seq > 150")
    await opened.close()
    again = await Writer(database, None, context="cluster").start()
    relaying._writer = again
    await relaying.append(100, text="other")
    relaying.start()
    await until(lambda: relaying.relay.rebuilds == 1)
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)
    assert b"other" in (await relaying.holds())[-1].data
    await again.close()


async def test_a_stream_is_bounded_by_bytes_and_that_is_no_reason_to_fill_it_again(relaying: Relaying) -> None:
    relaying.settings = AuditSettings(poll_interval_s=0.1, stream_mib=1)
    await relaying.append(3_000)
    relaying.start()
    await relaying.wait_for_head()
    await relaying.append(2_000)
    await relaying.wait_for_head()
    await asyncio.sleep(0.5)  # several checks
    await relaying.append(1)
    await relaying.wait_for_head()
    found = await relaying.seqs()
    assert found == counted(relaying.upto, found[0])
    assert found[0] > 2_000
    assert relaying.relay.rebuilds == 0
    await relaying.stop()
    relaying.start()
    await relaying.append(1)
    await relaying.wait_for_head()
    assert relaying.relay.rebuilds == 0


async def test_an_empty_stream_begins_at_the_oldest_event_within_its_age(relaying: Relaying, database: str) -> None:
    old = time.time_ns() - 8 * 86_400 * 10**9
    await relaying._writer.log.append([], now_ns=old)
    await relaying.append(100)
    opened = Database(database)
    async with opened.transaction() as connection:
        then = datetime.now(UTC) - timedelta(days=8)
        await connection.execute("update events set at = $1 where context = 'cluster' and seq <= 40", then)
    await opened.close()
    relaying.start()
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto, 41)


async def test_an_event_too_large_for_a_message_is_sent_without_its_data(relaying: Relaying) -> None:
    large = ObjectObserved(resource="configmaps", name="a/large", uid="u", object={"data": "y" * 1_100_000})
    await relaying._writer.append(large)
    await relaying.append(1)
    relaying.start()
    await relaying.wait_for_head()
    event = json.loads((await relaying.holds())[1].data)
    assert "data" not in event
    assert event["dataref"] == "koord.log.read.cluster"


async def test_a_foreign_stream_on_our_subjects_is_logged_and_waited_for(
    relaying: Relaying, caplog: pytest.LogCaptureFixture
) -> None:
    await relaying.streams.ensure(StreamConfig(name="OTHER", subjects=("koord.event.cluster.>",)))
    relaying.start()
    await relaying.append(10)
    await until(lambda: "relay restarts" in caplog.text)
    await relaying.streams.delete("OTHER")
    await relaying.wait_for_head()
    assert await relaying.seqs() == counted(relaying.upto)
