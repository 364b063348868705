"""Malformed requests to JetStream are recorded from what a real NATS server reports of them."""

from pathlib import Path

import pytest

from cli.embedded import EmbeddedNats
from shared.bus import Bus
from shared.bus.jetstream import StreamConfig, Streams
from shared.bus.rejected_stream_requests import AUDITED, record_rejected
from shared.rejected_messages import RejectionRecord
from tests.support.waiting import until

CONFIG = StreamConfig(name="EVENTS", subjects=("koord.event.>",))


@pytest.mark.servers
async def test_malformed_requests_are_recorded_and_those_for_what_does_not_exist_are_not(tmp_path: Path) -> None:
    record = RejectionRecord()
    async with EmbeddedNats(tmp_path / "nats") as server:
        bus = Bus(server.url, name="test")
        await bus.start()
        await bus.subscribe(AUDITED, lambda data: record_rejected(data, record))
        streams = Streams(bus)
        assert await streams.state("EVENTS") is None
        before = await streams.ensure(CONFIG)
        for request in ("STREAM.UPDATE.EVENTS", "CONSUMER.CREATE.EVENTS", "CONSUMER.DELETE.EVENTS.x"):
            for body in (b"\x00\xff", b"x" * 100_000):
                await bus.publish(f"$JS.API.{request}", body)
        await until(lambda: sum(one.count for one in record.newest()), holds=lambda count: count == 6)
        assert {one.subject: one.reason.partition(":")[0] for one in record.newest()} == {
            "$JS.API.CONSUMER.CREATE.EVENTS": "invalid JSON",
            "$JS.API.CONSUMER.DELETE.EVENTS.x": "expected an empty request payload",
            "$JS.API.STREAM.UPDATE.EVENTS": "invalid JSON",
        }
        assert await streams.state("EVENTS") == before
        await bus.close()


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[" * 50_000, b"{}", b'{"subject":"x","response":"["}', b'{"client":1}']
)
def test_a_message_that_is_no_report_of_nats_changes_nothing(data: bytes) -> None:
    record = RejectionRecord()
    record_rejected(data, record)
    assert record.newest() == ()
