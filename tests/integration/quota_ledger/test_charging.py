"""Scheduler and quota ledger as processes: pods are charged before they are placed, and wait where they do not fit."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from cli.embedded import EmbeddedNats
from shared.events import EVENT_TYPES, Event
from shared.events.cluster import NodeObserved, PodDeleted
from shared.events.quota import PodAdmissionDecided, PodCharged
from shared.events.scheduling import CycleDecided, PodPlaced, PodUnschedulable
from tests.integration.quota_ledger.stage import Stage, stage, used
from tests.support.quota_logs import pod, quota
from tests.support.scheduling_world import node as roomy_node
from tests.support.waiting import until

BOTH = ("quota-ledger", "scheduler")


def ours(name: str, of: str, cpu: str, at: str = "") -> Event:
    observed = pod(name, of, cpu, at=at)
    spec = msgspec.structs.replace(observed.object.spec, scheduler_name="koord-scheduler")
    return msgspec.structs.replace(observed, object=msgspec.structs.replace(observed.object, spec=spec))


def large_node(name: str) -> Event:
    return NodeObserved(node=name, object=roomy_node(name, cpu="64", memory="64Gi"))


async def events(on: Stage, context: str) -> list[Event]:
    return [msgspec.json.decode(row.data, type=EVENT_TYPES[row.type]) async for row in on.log.rows(context=context)]


async def placed(on: Stage) -> dict[str, str]:
    found = [event for event in await events(on, "scheduling") if isinstance(event, PodPlaced)]
    assert len({event.pod_uid for event in found}) == len(found), "a pod was placed twice"
    return {event.pod_uid: event.node for event in found}


async def test_a_quota_admits_as_many_pods_as_fit_and_the_next_when_one_is_deleted(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, *BOTH) as on:
        await on.see(large_node("n1"), quota("a", "4", "4"), quota("b", "4", "60"))
        await on.see(*(ours(f"a{n}", "a", "1") for n in range(10)), *(ours(f"b{n}", "b", "1") for n in range(10)))
        await on.see(*(ours(f"free{n}", "", "1") for n in range(5)))
        await until(lambda: placed(on), holds=lambda found: len(found) == 19)
        await asyncio.sleep(1)
        found = await placed(on)
        team = sorted(uid for uid in found if uid.startswith("a"))
        assert (len(found), len(team)) == (19, 4)
        assert used(await on.projection(), "a") == {"cpu": 4000}
        waiting_events = {
            event.pod_uid: event for event in await events(on, "scheduling") if isinstance(event, PodUnschedulable)
        }
        assert {event.code for event in waiting_events.values()} == {"QuotaExceeded"}
        waiting = sorted({f"a{n}" for n in range(10)} - set(team))
        assert "Insufficient quotas, quotaName: a, runtime: cpu:4" in waiting_events[waiting[0]].message
        before = await on.log.head("quota")
        await on.see(PodDeleted(pod=f"ns/{team[0]}", pod_uid=team[0]))
        await until(lambda: placed(on), holds=lambda found: len(found) == 20)
        refused = [
            event for event in (await events(on, "quota"))[before.seq :] if isinstance(event, PodAdmissionDecided)
        ]
        assert refused == [], "only the pod that fits was tried"
        cycles = [event for event in await events(on, "scheduling") if isinstance(event, CycleDecided)]
        assert cycles[-1].charged_at > before.seq


async def test_while_the_ledger_is_away_pods_with_a_quota_wait_and_all_others_are_placed(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    env = {"scheduler": {"KOORD_SCHEDULER_QUOTA_TIMEOUT_S": "0.5"}}
    async with stage(database, nats, tmp_path, *BOTH, env=env) as on:
        await on.see(large_node("n1"), quota("a", "8", "8"))
        await on.see(ours("a0", "a", "1"))
        await until(lambda: placed(on), holds=lambda found: set(found) == {"a0"})
        ledger = on.supervisor.units["quota-ledger"].process
        ledger.pause()
        try:
            await on.see(ours("a1", "a", "1"), *(ours(f"free{n}", "", "1") for n in range(5)))
            await until(lambda: placed(on), holds=lambda found: len(found) == 6)
            found = [event for event in await events(on, "scheduling") if isinstance(event, PodUnschedulable)]
            assert [(event.pod_uid, event.code) for event in found] == [("a1", "QuotaLedgerUnreachable")]
        finally:
            ledger.resume()
        await until(lambda: placed(on), holds=lambda found: len(found) == 7)
        await until(on.projection, holds=lambda projection: used(projection, "a") == {"cpu": 2000})


@pytest.mark.parametrize(
    ("service", "failpoint"),
    [
        ("quota-ledger", "quota.before-charge:4"),
        ("quota-ledger", "quota.charged-before-answer:4"),
        ("quota-ledger", "log.after-commit-before-announce:12"),
        ("scheduler", "scheduler.charged-before-append:4"),
        ("scheduler", "log.before-commit:6"),
        ("scheduler", "log.after-commit-before-announce:6"),
    ],
)
async def test_a_service_that_ends_during_charging_leaves_every_pod_charged_once_and_none_lost(
    database: str, nats: EmbeddedNats, tmp_path: Path, service: str, failpoint: str
) -> None:
    async with stage(database, nats, tmp_path, *BOTH, env={service: {"KOORD_FAILPOINT": failpoint}}) as on:
        await on.see(large_node("n1"), quota("a", "6", "6"), quota("b", "20", "60"))
        for n in range(10):
            await on.see(ours(f"a{n}", "a", "1"), ours(f"b{n}", "b", "2"))
            await asyncio.sleep(0.15)
        await until(lambda: placed(on), holds=lambda found: len(found) == 16)
        assert on.supervisor.units[service].restarts > 0, "the failpoint was never reached"
        found = await placed(on)
        await until(
            on.projection,
            holds=lambda projection: (
                used(projection, "a") == {"cpu": 6000} and used(projection, "b") == {"cpu": 20_000}
            ),
        )
        projection = await on.projection()
        assert {uid for uid, held in projection.pods.items() if held.charged} == set(found)
        charged = [event for event in await events(on, "quota") if isinstance(event, PodCharged)]
        assert len(charged) >= 16
