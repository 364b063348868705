"""An agent without a connection through Mosquitto: it keeps its reports on disk, and delivers them behind newer ones."""

import asyncio
import itertools
import time
from pathlib import Path

import pytest
from aiomqtt import Client

from cli.embedded import EmbeddedNats
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.transport.backlog_files import BacklogFiles
from services.node_agent.transport.mqtt_transport import MqttTransport
from services.node_agent.transport.outbox import Message, Outbox
from shared.agents import backlog, subjects
from shared.agents.broker import Broker
from shared.agents.report import PodSum, Report, Series, decode, encode
from shared.agents.subjects import REPORT
from shared.events.cluster import NodeObserved
from shared.events.metrics import NodeHistoryReported, NodeReported
from shared.kube.instants import SECOND
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.ingest_process import stage
from tests.support.mosquitto import Mosquitto
from tests.support.scheduling_world import node
from tests.support.waiting import until

NODE = "edge.1"
PODS = 30
INTERVAL_S = 15
A_DAY = 86_400 // INTERVAL_S


def measured(number: int, end_ns: int) -> Report:
    """Returns the report of a quarter of a minute with fifteen samples."""
    offsets = tuple(range(1_000, 1_000 * INTERVAL_S + 1, 1_000))
    cpu = tuple(1_000_000 + (number * 7_919 + each) % 900_000 for each in offsets)
    series = Series(offsets, cpu, tuple((1 << 30) + each * 4_096 for each in cpu))
    pods = tuple(
        PodSum(f"{index:08x}-1111-4222-8333-444455556666", sum(cpu), 15, cpu[-1], 15 << 28, 15, 1 << 28)
        for index in range(PODS)
    )
    return Report(NODE, "boot", number, end_ns, INTERVAL_S * SECOND, series, series, series, pods)


class OfflineAgent:
    """Outbox and connection of an agent; reports are put as fast as they are made."""

    def __init__(self, url: str, folder: Path) -> None:
        self.outbox = Outbox(2 * 1024 * 1024, BacklogFiles(folder / "backlog", NODE, "boot", 64 * 1024 * 1024))
        self.transport = MqttTransport(NODE, Broker.parse(url), self.outbox, NodeSloInformer(NODE, folder))

    def measure(self, count: int, first: int = 1) -> None:
        """Puts so many reports, the last of which ends now."""
        now_ns = time.time_ns()
        for number in range(first, first + count):
            end_ns = now_ns - (first + count - 1 - number) * INTERVAL_S * SECOND
            self.outbox.put(Message(REPORT, number, encode(measured(number, end_ns))))


async def test_what_was_measured_offline_arrives_in_order_behind_what_is_newer(tmp_path: Path) -> None:
    count = 200
    broker = Mosquitto(tmp_path / "mosquitto")
    agent = OfflineAgent(broker.url, tmp_path)
    sending = asyncio.create_task(agent.transport.run())  # there is no broker yet
    agent.measure(count)
    kept = agent.outbox.kept[0]
    assert kept == 180
    await asyncio.to_thread(broker.start)
    where = Broker.parse(broker.url)
    live, old = list[int](), list[int]()
    async with Client(where.host, where.port, identifier="ingest") as client, asyncio.timeout(60):
        await client.subscribe(subjects.topic(NODE, REPORT), qos=1)
        async for message in client.messages:
            data = bytes(message.payload)
            if not backlog.is_backlog(data):
                live.append(decode(data, NODE).seq)
            else:
                assert len(live) >= count - kept, "newer reports come first"
                old += [decode(each, NODE).seq for each in backlog.decode(data, NODE)[1]]
                if len(old) == 20:
                    agent.outbox.put(Message(REPORT, count + 1, encode(measured(count + 1, time.time_ns()))))
            if len(live) + len(old) == count + 1:
                break
    await cancel_and_wait(sending)
    await asyncio.to_thread(broker.stop)
    assert live == [*range(kept + 1, count + 1), count + 1]
    assert old == list(range(1, kept + 1))
    assert (agent.outbox.dropped, agent.outbox.dropped_from_disk) == (0, 0)


@pytest.mark.soak
async def test_a_day_offline_is_recorded_minute_by_minute_and_changes_nothing_newer(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    broker = Mosquitto(tmp_path / "mosquitto")
    agent = OfflineAgent(broker.url, tmp_path)
    agent.measure(A_DAY)
    kept, size = agent.outbox.kept
    assert agent.outbox.dropped_from_disk == 0
    assert kept == A_DAY - len(agent.outbox)
    print(f"a day on disk: {kept} reports of {PODS} pods in {size} bytes")
    await asyncio.to_thread(broker.start)
    async with stage(database, nats, tmp_path, mqtt=broker.url) as on:
        await on.observe(NodeObserved(node=NODE, object=node(NODE)))
        log = tmp_path / "logs" / "metrics-ingest.log"
        # A broker keeps nothing for a session that it never had.
        await until(lambda: "the broker is there" in log.read_text())
        sending = asyncio.create_task(agent.transport.run())
        numbers = itertools.count(A_DAY + 1)

        async def recorded() -> int:
            agent.measure(1, next(numbers))  # one that is newer, all the while
            found = await on.events("metrics-0", NodeHistoryReported)
            return len({event.at_ns // (60 * SECOND) for event in found if isinstance(event, NodeHistoryReported)})

        await until(recorded, holds=lambda minutes: minutes >= kept * INTERVAL_S // 60)
        events = await on.events("metrics-0", NodeHistoryReported, NodeReported)
        past = [event for event in events if isinstance(event, NodeHistoryReported)]
        newest = [event.at_ns for event in events if isinstance(event, NodeReported)]
        numbers_of = [event.number for event in past]
        assert numbers_of == sorted(numbers_of)
        assert [event.at_ns for event in past] == sorted(event.at_ns for event in past)
        assert newest == sorted(newest)
        assert min(newest) >= min(event.at_ns for event in past) + (kept - 1) * INTERVAL_S * SECOND
        await cancel_and_wait(sending)
    await asyncio.to_thread(broker.stop)
