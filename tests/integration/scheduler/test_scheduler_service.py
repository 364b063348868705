"""The scheduler as a process on real servers: it follows, decides, appends, is killed and continues."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import msgspec

from cli.embedded import EmbeddedNats
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.scheduler_state import SchedulerState
from shared.bus import Bus
from shared.domain.gang import POD_GROUP_LABEL
from shared.events import EVENT_TYPES, Draft, Event, RecordedEvent
from shared.events.cluster import NodeObserved, ObjectObserved
from shared.events.intents import FieldsDesired
from shared.events.log import WriterStarted
from shared.events.scheduling import CycleDecided, PlacementReserved, PodPlaced
from shared.kube.resource_names import NETWORK_TOPOLOGIES, POD_GROUPS, RESERVATIONS
from shared.kube.system_annotations import RESERVATION_ALLOCATED
from shared.log.database import Database
from shared.log.writer import LogWriter
from tests.support.pods import observed
from tests.support.reservations import reservation
from tests.support.scheduling_world import node, pod
from tests.support.waiting import until


class Row(NamedTuple):
    """An event as stored."""

    seq: int
    at_ns: int
    event: Event


class Stage:
    """A log with a gateway that only records observations, and a scheduler process."""

    def __init__(self, url: str, supervisor: Supervisor, gateway: LogWriter) -> None:
        self.url = url
        self.supervisor = supervisor
        self.gateway = gateway

    async def see(self, *events: Event) -> None:
        await self.gateway.append([Draft(event) for event in events], now_ns=time.time_ns(), seen={})

    async def log(self, context: str) -> list[Row]:
        """Returns all events of a context."""
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch(f"select seq, type, at, data from events_{context} order by seq")
        finally:
            await connection.close()
        return [
            Row(
                row["seq"],
                int(row["at"].timestamp() * 1_000_000) * 1000,
                msgspec.json.decode(row["data"], type=EVENT_TYPES[row["type"]]),
            )
            for row in rows
        ]

    async def placed(self) -> dict[str, str]:
        """Returns uid -> node; fails when a pod was placed twice."""
        events = [row.event for row in await self.log("scheduling") if isinstance(row.event, PodPlaced)]
        assert len({event.pod_uid for event in events}) == len(events), "a pod was placed twice"
        return {event.pod_uid: event.node for event in events}

    async def until_placed(self, pods: int) -> dict[str, str]:
        placed: dict[str, str] = await until(self.placed, holds=lambda placed: len(placed) == pods)
        return placed


@asynccontextmanager
async def stage(database: str, nats: EmbeddedNats, folder: Path, **settings: object) -> AsyncIterator[Stage]:
    env = {"KOORD_SNAPSHOT_INTERVAL_S": "0.5", "KOORD_REBUILD_INTERVAL_S": "1"}
    own = {f"KOORD_SCHEDULER_{name.upper()}": str(value) for name, value in settings.items()}
    async with AsyncExitStack() as running:
        bus = Bus(nats.url, name="test")
        await bus.start()
        running.push_async_callback(bus.close)
        connection = Database(database)
        running.push_async_callback(connection.close)
        gateway = LogWriter(connection, bus, "cluster", "gateway@test")
        await gateway.acquire()
        await gateway.begin("0", (), now_ns=time.time_ns(), seen={})
        running.push_async_callback(gateway.close)
        supervisor = Supervisor([Spec("scheduler", "scheduler", own)], Endpoints(database, nats.url), folder, env=env)
        running.push_async_callback(supervisor.stop)
        await supervisor.start()
        await supervisor.wait_until(lambda unit: unit.state == "leading", 240, "leading")
        yield Stage(database, supervisor, gateway)


def nodes(count: int) -> list[Event]:
    return [NodeObserved(node=f"n{i}", object=node(f"n{i}", cpu="32", memory="64Gi")) for i in range(count)]


def pods(first: int, last: int) -> list[Event]:
    return [observed(pod(f"p{i}")) for i in range(first, last)]


async def test_pods_are_placed_and_none_twice_although_the_scheduler_is_killed(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        await on.see(*nodes(20), *pods(0, 50))
        await on.until_placed(50)
        for cycle in range(3):
            first = 50 + 100 * cycle
            await on.see(*pods(first, first + 100))
            await asyncio.sleep(0.05 * cycle)
            await on.supervisor.wait_leading()  # it may still be restarting after the last kill
            pid = on.supervisor.units["scheduler"].process.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await on.until_placed(first + 100)
        assert len(epochs(await on.log("scheduling"))) >= 3, "it was restarted"


def epochs(rows: list[Row]) -> list[WriterStarted]:
    return [row.event for row in rows if isinstance(row.event, WriterStarted)]


async def test_the_log_replays_every_cycle_as_it_was_decided(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with stage(database, nats, tmp_path, batch_size=16) as on:
        await on.see(*nodes(3))
        for first in range(0, 60, 20):
            await on.see(*pods(first, first + 20))
            await on.until_placed(first + 20)
        cluster, ours = await on.log("cluster"), await on.log("scheduling")

    view = SchedulerState()
    cache = None
    for position, row in enumerate(ours):
        cycle = row.event
        if isinstance(cycle, CycleDecided):
            assert cycle.seen is not None
            assert cycle.now_ns is not None
            for seen in cluster[view.positions.get("cluster", 0) : cycle.seen["cluster"]]:
                view.apply(RecordedEvent("cluster", seen.seq, seen.event, seen.at_ns))
            cache = cache or CycleInputs(view, config_of(view).profiles)
            drafts = decide(cache, cycle.now_ns, 16)
            recorded = [other.event for other in ours[position + 1 : position + len(drafts)]]
            assert [draft.event for draft in drafts[1:]] == recorded
            stamped = {"seen": cycle.seen, "now_ns": cycle.now_ns, "config": cycle.config}
            assert msgspec.structs.replace(drafts[0].event, **stamped) == cycle
        view.apply(RecordedEvent("scheduling", row.seq, row.event, row.at_ns))
    assert cache is not None


async def test_an_invalid_configuration_file_is_rejected_with_an_event_and_a_valid_one_is_applied(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("profiles: 1")
    async with stage(database, nats, tmp_path, config=file, config_interval_s=0.1) as on:

        async def kinds() -> list[str]:
            return [row.event.type_name().split(".")[-2] for row in await on.log("scheduling")]

        rejected = ["WriterStarted", "ConfigApplied", "ConfigRejected", "ConfigRejected"]  # it has two faults
        await until(kinds, holds=lambda found: found == rejected)
        text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: mine}]"
        whole = tmp_path / "whole.yaml"
        await asyncio.to_thread(whole.write_text, text)
        whole.rename(file)  # the service must not read a part of it
        await until(kinds, holds=lambda found: found == [*rejected, "ConfigApplied"])
        await on.see(*nodes(1), observed(pod("p", scheduler="mine")), *pods(1, 2))
        assert await on.until_placed(1) == {"p": "n0"}


async def test_pods_that_fit_nowhere_and_absurd_objects_neither_end_nor_delay_the_service(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        deep = {"scheduling.koordinator.sh/resource-spec": "[" * 100_000}
        flood = [pod(f"big{number}", cpu="1e999999999" if number % 2 else "64") for number in range(2000)]
        flood += [pod("deep", annotations=deep)]
        await on.see(*nodes(5), NodeObserved(node="odd", object=node("odd", cpu="9" * 5000, memory="-1")))
        await on.see(*(observed(each) for each in flood))
        await on.see(*pods(0, 1))
        assert (await on.until_placed(1)).keys() == {"p0"}
        await on.supervisor.wait_leading()
        assert len(epochs(await on.log("scheduling"))) == 1, "it never ended"


async def test_a_reservation_is_held_written_back_and_used_although_the_scheduler_is_killed(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        body = reservation("web", "24", created_ns=time.time_ns())
        await on.see(*nodes(1), ObjectObserved(resource=RESERVATIONS, name="web", uid="r-web", object=body))

        async def status() -> dict[str, object]:
            desired = [row.event for row in await on.log("scheduling") if isinstance(row.event, FieldsDesired)]
            return desired[-1].patch["status"] if desired else {}

        written = await until(status, holds=lambda found: found.get("phase") == "Available")
        assert written["nodeName"] == "n0"
        assert sum(isinstance(row.event, PlacementReserved) for row in await on.log("scheduling")) == 1
        pid = on.supervisor.units["scheduler"].process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        there = ObjectObserved(resource=RESERVATIONS, name="web", uid="r-web", object={**body, "status": written})
        await on.see(there, observed(pod("other", cpu="16")), observed(pod("owner", cpu="16", labels={"app": "web"})))
        assert await on.until_placed(1) == {"owner": "n0"}
        placed = [row.event for row in await on.log("scheduling") if isinstance(row.event, PodPlaced)]
        assert placed[0].annotations[RESERVATION_ALLOCATED] == '{"name":"web","uid":"r-web"}'


async def test_a_gang_is_placed_as_a_whole_and_statuses_show_its_phase_and_the_network(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        body = {"metadata": {"name": "job", "namespace": "d", "uid": "g"}, "spec": {"minMember": 2}}
        await on.see(*nodes(1), ObjectObserved(resource=POD_GROUPS, name="d/job", uid="g", object=body))

        async def statuses(resource: str) -> list[dict[str, Any]]:
            events = [row.event for row in await on.log("scheduling")]
            return [
                each.patch["status"] for each in events if isinstance(each, FieldsDesired) and each.resource == resource
            ]

        async def phase() -> object:
            desired = await statuses(POD_GROUPS)
            return desired[-1]["phase"] if desired else ""

        await until(phase, holds=lambda found: found == "Pending")
        members = [pod(f"p{number}", labels={POD_GROUP_LABEL: "job"}) for number in range(2)]
        await on.see(*map(observed, members))
        assert await on.until_placed(2) == {"p0": "n0", "p1": "n0"}
        await until(phase, holds=lambda found: found == "Scheduling")
        running = (pod(f"p{n}", labels={POD_GROUP_LABEL: "job"}, on="n0", phase="Running") for n in range(2))
        await on.see(*map(observed, running))
        await until(phase, holds=lambda found: found == "Running")
        layers = [{"topologyLayer": "NodeTopologyLayer"}]
        network = {"metadata": {"name": "default", "uid": "t"}, "spec": {"networkTopologySpec": layers}}
        await on.see(ObjectObserved(resource=NETWORK_TOPOLOGIES, name="default", uid="t", object=network))
        written = await until(lambda: statuses(NETWORK_TOPOLOGIES), holds=bool)
        assert [each["nodeNum"] for each in written[0]["detailStatus"]] == [1]
