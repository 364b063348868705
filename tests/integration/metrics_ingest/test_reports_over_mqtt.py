"""Reports over MQTT, by NATS' own listener and by Mosquitto: an acknowledged report is accepted across restarts."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Protocol

import msgspec
import pytest
from aiomqtt import Client, MqttError

from cli.doctor.check_rejected_messages import about_rejected
from cli.embedded import EmbeddedNats
from cli.supervisor.supervisor import Spec
from shared.agents import actions, node_slo, receipt, subjects
from shared.agents.actions import ActionReport, Suppressed
from shared.agents.report import Report, encode
from shared.events import Event
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.events.metrics import NodeReported
from shared.events.nodes import BestEffortSuppressed
from shared.kube.instants import SECOND
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.forged_messages import BODIES, OVERSIZED
from tests.support.ingest_process import IngestSystem, report, stage
from tests.support.mosquitto import Mosquitto
from tests.support.scheduling_world import node
from tests.support.waiting import PATIENCE_S, until

NODES = [f"rack.{number}" for number in range(24)]


class Broker(Protocol):
    """A broker that tests stop and start."""

    url: str

    async def stop(self) -> None:
        """Stops it with SIGTERM, as an update does."""
        ...

    async def start(self) -> None:
        """Starts it with its sessions."""
        ...


class _Mosquitto:
    def __init__(self, directory: Path) -> None:
        self._broker = Mosquitto(directory)
        self.url = self._broker.url

    async def start(self) -> None:
        await asyncio.to_thread(self._broker.start)

    async def stop(self) -> None:
        await asyncio.to_thread(self._broker.stop)


class _Nats:
    def __init__(self, directory: Path) -> None:
        self._server = EmbeddedNats(directory)
        self.url = self._server.mqtt_url

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop()


@pytest.fixture(params=["nats", "mosquitto"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker of its own for each test, apart from the bus."""
    started: Broker = (_Nats if request.param == "nats" else _Mosquitto)(tmp_path / "broker")
    await started.start()
    yield started
    await started.stop()


@asynccontextmanager
async def agent(broker: Broker, name: str = "test") -> AsyncIterator[Client]:
    host, _, port = broker.url.removeprefix("mqtt://").partition(":")
    async with Client(host, int(port), identifier=name, clean_session=False, timeout=5) as client:
        yield client


async def publish(broker: Broker, reports: Iterable[Report], name: str = "test") -> None:
    """Publishes as an agent does: again and again until the broker has acknowledged it."""
    for sent in reports:
        while True:
            try:
                async with agent(broker, name) as client:
                    await client.publish(subjects.topic(sent.node, subjects.REPORT), encode(sent), qos=1)
                    break
            except (MqttError, OSError):
                await asyncio.sleep(0.1)


async def recorded(on: IngestSystem) -> set[str]:
    return {event.node for event in await on.events("metrics-0") if isinstance(event, NodeReported)}


async def ready(on: IngestSystem, broker: Broker) -> None:
    """Waits until ingest has folded the nodes and has its session."""
    await on.observe(*(NodeObserved(node=name, object=node(name)) for name in (*NODES, "first")))
    numbers = iter(range(1, 1_000))

    async def first() -> set[str]:
        await publish(broker, [report("first", next(numbers))])
        return await recorded(on)

    await until(first, holds=len)


async def test_reports_published_while_ingest_is_away_are_accepted_when_it_is_back(
    broker: Broker, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, mqtt=broker.url) as on:
        await ready(on, broker)
        on.supervisor.kill("metrics-ingest")
        await publish(broker, (report(name) for name in NODES))
        await until(lambda: recorded(on), holds=lambda found: found == {"first", *NODES})


async def test_the_backlog_of_an_offline_agent_is_accepted_in_any_order_and_with_repeats(
    broker: Broker, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    name, half_minutes = NODES[0], 40
    async with stage(database, nats, tmp_path, mqtt=broker.url) as on:
        await ready(on, broker)
        on.supervisor.kill("metrics-ingest")
        end_ns = time.time_ns() - 90 * SECOND
        backlog = [
            report(name, number, at_ns=end_ns - (half_minutes - number) * 30 * SECOND, seconds=30, cores=number)
            for number in range(1, half_minutes + 1)
        ]
        hours_ago = report(name, 7, at_ns=end_ns - 7_200 * SECOND, seconds=30, cores=90, boot="long ago")
        ahead = report(name, 8, at_ns=end_ns + 600 * SECOND, seconds=30, cores=90, boot="clock")
        disordered = [*backlog, *backlog[::4], hours_ago, ahead]
        Random(3).shuffle(disordered)
        await publish(broker, disordered)
        last = report(name, half_minutes + 1, at_ns=end_ns + 60 * SECOND, seconds=30, cores=half_minutes + 1)

        async def known() -> list[NodeReported]:
            await publish(broker, [last])
            return [each for each in await on.reports() if each.node == name]

        found = await until(known, holds=lambda found: found and found[-1].at_ns == last.at_ns)
        times = [each.at_ns for each in found]
        assert times == sorted(set(times)), "each is newer than the one before"
        assert all(later - earlier >= 45 * SECOND for earlier, later in itertools.pairwise(times))
        ten_minutes = next(window for window in found[-1].windows if window.duration_s == 600)
        # A sample each second, the one ten minutes ago included, each of as many cores as its report has a number.
        # Between the last two reports nothing was measured.
        samples = [(each.at_ns - second * SECOND, each.seq) for each in (*backlog, last) for second in range(30)]
        within = sorted(cores for at_ns, cores in samples if at_ns >= last.at_ns - 600 * SECOND)
        assert ten_minutes.node[0].cpu_milli == sum(within) * 1000 // len(within)
        assert ten_minutes.node[4].cpu_milli == within[int(len(within) * 0.99) - 1] * 1000


async def test_nothing_that_the_broker_has_acknowledged_is_lost_when_it_restarts(
    broker: Broker, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, mqtt=broker.url) as on:
        await ready(on, broker)
        publishing = asyncio.create_task(publish(broker, (report(name) for name in NODES)))
        await until(lambda: recorded(on), holds=lambda found: len(found) > 5)
        await broker.stop()
        await broker.start()
        await publishing
        await until(lambda: recorded(on), holds=lambda found: found == {"first", *NODES})
        assert len(await on.reports()) == 1 + len(NODES), "what came twice is one"


async def test_a_rejection_is_sent_to_the_agent_and_a_nodeslo_is_retained_for_it(
    broker: Broker, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    spec = {"cpuBurstStrategy": {"policy": "auto"}}
    async with stage(database, nats, tmp_path, mqtt=broker.url) as on:
        await ready(on, broker)
        await on.observe(
            ObjectObserved(resource="nodeslos.slo.koordinator.sh", name="rack.1", uid="s", object={"spec": spec})
        )
        async with agent(broker, "agent") as client:
            sent = report("rack.1", 7, at_ns=time.time_ns() + 10**12)
            received: dict[str, bytes] = {}

            async def receive() -> None:
                async for message in client.messages:
                    assert isinstance(message.payload, bytes)
                    received[message.topic.value.rpartition("/")[2]] = message.payload

            # A client that subscribes in the instant of a publication may miss it and the retained message, so it
            # subscribes again, as an agent does.
            hearing = asyncio.create_task(receive())
            ends = time.monotonic() + PATIENCE_S
            while len(received) < 2:
                assert time.monotonic() < ends, received
                await client.subscribe([(subjects.topic("rack.1", kind), 0) for kind in subjects.TO_AGENT])
                await client.publish(subjects.topic("rack.1", subjects.REPORT), encode(sent), qos=1)
                await asyncio.wait([hearing], timeout=2)
                assert not hearing.done(), hearing
            await cancel_and_wait(hearing)
        refused = receipt.decode(received[subjects.REFUSED])
        assert (refused.kind, refused.boot, refused.seq) == ("report", "b", 7)
        assert "ahead of our clock" in refused.refused
        assert node_slo.decode(received[subjects.SLO], "rack.1").spec == spec


async def test_a_repeated_action_is_recorded_once_even_after_a_kill(
    broker: Broker, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    specs = [Spec("action-ingest", "action-ingest")]
    async with stage(database, nats, tmp_path, mqtt=broker.url, specs=specs) as on:
        sent = ActionReport("rack.1", "b", 1, time.time_ns(), Suppressed("cpuset", 2000, "0-1"))
        where = subjects.topic("rack.1", subjects.ACTION)

        async def recorded() -> list[Event]:
            return await on.events("nodes-0", BestEffortSuppressed)

        async with agent(broker) as client:  # the first may come before ingest's session

            async def send_action() -> list[Event]:
                await client.publish(where, actions.encode(sent), qos=1)
                return await recorded()

            await until(send_action, holds=len)
            on.supervisor.kill("action-ingest")
            await client.publish(where, actions.encode(sent), qos=1)
            last = msgspec.structs.replace(sent, seq=2)
            await client.publish(where, actions.encode(last), qos=1)
        found = await until(recorded, holds=lambda events: len(events) >= 2)
        assert [event.number for event in found if isinstance(event, BestEffortSuppressed)] == [1, 2]


def rubbish(name: str) -> list[bytes]:
    """Returns messages that no agent of this node sends: no message at all, cut, of another node, of another kind."""
    own = encode(report(name))
    action = actions.encode(ActionReport("rack.9", "b", 1, time.time_ns(), Suppressed("cpuset", 2000, "0-1")))
    return [*BODIES, OVERSIZED[: 2**20 - 1_000], own[:-3], own * 2, encode(report("rack.9")), action]


async def test_rubbish_with_qos_1_changes_no_state_and_stops_nobody_and_the_doctor_names_its_sender(
    broker: Broker, database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    specs = [Spec("metrics-ingest", "metrics-ingest"), Spec("action-ingest", "action-ingest")]
    kinds, sender = (subjects.REPORT, subjects.ACTION), NODES[0]
    async with stage(database, nats, tmp_path, mqtt=broker.url, specs=specs) as on:
        await ready(on, broker)
        before = [await on.events(context, NodeReported, BestEffortSuppressed) for context in ("metrics-0", "nodes-0")]

        async def named() -> str:
            """Returns what the doctor says."""
            statuses = {name: unit.status for name, unit in on.supervisor.units.items()}
            return "\n".join(finding.what for finding in about_rejected(statuses, ()))

        async with agent(broker, "forger") as client:
            for kind, body, retain in itertools.product(kinds, rubbish(sender), (False, True)):
                await client.publish(subjects.topic(sender, kind), body, qos=1, retain=retain)
        expected = f"the login of node {sender} sends messages on "
        await until(
            named,
            holds=lambda found: expected in found and all(subjects.subject(sender, kind) in found for kind in kinds),
        )
        await broker.stop()  # retained ones come again to a new session, and unacknowledged ones to the old one
        await broker.start()
        await publish(broker, [report(NODES[1])])
        await until(lambda: recorded(on), holds=lambda found: found == {"first", NODES[1]})
        after = [await on.events(context, NodeReported, BestEffortSuppressed) for context in ("metrics-0", "nodes-0")]
        new = [event for events, old in zip(after, before, strict=True) for event in events[len(old) :]]
        assert {event.node for event in new if isinstance(event, NodeReported | BestEffortSuppressed)} == {NODES[1]}
        assert {unit.spec.name: unit.why for unit in on.supervisor.units.values() if unit.restarts} == {}
