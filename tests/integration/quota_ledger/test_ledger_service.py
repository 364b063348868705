"""The quota ledger as a process, on real servers: it records observed pods and decides charge requests."""

import asyncio
import time
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.embedded import EmbeddedNats
from shared.bus import NoResponse
from shared.events import Cause
from shared.events.cluster import BindRejected
from shared.events.scheduling import CycleDecided, PodOutcome, PodPlaced
from tests.integration.quota_ledger.stage import Stage, stage, used
from tests.support.quota_logs import node, pod, quota
from tests.support.waiting import PATIENCE_S, until

LEDGER = "quota-ledger"
OPERATIONS = {"UpdateQuota", "OnPodUpdate", "RefreshRuntime", "ReservePod"}


def placed(uid: str, cycle: int) -> tuple[CycleDecided, PodPlaced]:
    decided = CycleDecided(cycle=cycle, pods=(PodOutcome(pod_uid=uid, class_index=0, node="n1"),))
    return decided, PodPlaced(pod_uid=uid, pod=f"ns/{uid}", node="n1", cycle=cycle, request={"cpu": 2000})


async def measured_operations(on: Stage) -> dict[str, float]:
    """Returns how often the ledger measured each operation."""
    url = f"http://{on.supervisor.units[LEDGER].http}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        families = text_string_to_metric_families(await response.text())
    samples = [sample for family in families for sample in family.samples]
    latency = "scheduler_elastic_quota_process_latency_count"
    return {each.labels["operation"]: each.value for each in samples if each.name == latency}


async def two_teams(on: Stage) -> None:
    await on.see(node("n1", "10"), quota("a", "4", "10"), quota("b", "4", "10"))


async def test_a_pod_is_charged_once_however_often_its_cycle_requests_it(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, LEDGER) as on:
        await two_teams(on)
        await on.see(pod("p1", "a", "2"))
        first = await on.request(1, ("p1",))
        assert (first.charged, first.refused) == ({"p1": "a"}, {})
        assert (await on.request(1, ("p1",))).charged == {"p1": "a"}
        assert used(await on.projection(), "a") == {"cpu": 2000}
        await on.decide(*placed("p1", 1))
        late = await on.request(1, ("p1",))
        assert late.late
        assert late.charged == {}
        projection = await on.projection()
        assert (used(projection, "a"), projection.pods["p1"].charged) == ({"cpu": 2000}, True)
        measured = await measured_operations(on)
        assert {operation for operation, count in measured.items() if count} == OPERATIONS


async def test_a_cycle_that_ends_without_the_pod_or_is_rejected_reverts_the_charge(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, LEDGER) as on:
        await two_teams(on)
        await on.see(pod("p1", "a", "2"), pod("p2", "a", "2"))
        assert (await on.request(1, ("p1",), ("p2",))).refused == {}
        decided = await on.decide(*placed("p1", 1))
        await until(on.projection, holds=lambda projection: used(projection, "a") == {"cpu": 2000})
        await on.see(BindRejected(pod="ns/p1", pod_uid="p1", reason="no"), cause=Cause("scheduling", decided[1].seq))
        await until(on.projection, holds=lambda projection: used(projection, "a") == {})
        assert (await on.request(2, ("p1", "p2"))).charged == {"p1": "a", "p2": "a"}


async def test_a_group_is_charged_as_a_whole_or_not_at_all_and_others_are_still_charged(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path, LEDGER) as on:
        await on.see(node("n1", "10"), quota("a", "4", "4"), quota("b", "4", "10"))
        await on.see(*(pod(f"a{n}", "a", "2") for n in range(3)), pod("b0", "b", "2"))
        found = await on.request(1, ("a0", "a1", "a2"), ("b0",))
        assert found.charged == {"b0": "b"}
        assert set(found.refused) == {"a0", "a1", "a2"}
        assert found.refused["a0"].short == {"cpu": 2000}
        assert (await on.request(1, ("a0", "a1"), ("b0",))).refused == {}


@pytest.mark.parametrize(
    "failpoint", ["quota.before-charge:3", "log.before-commit:6", "quota.charged-before-answer:3", "quota.answered:3"]
)
async def test_a_request_to_a_ledger_that_dies_is_repeated_without_a_double_charge(
    database: str, nats: EmbeddedNats, tmp_path: Path, failpoint: str
) -> None:
    async with stage(database, nats, tmp_path, LEDGER, env={LEDGER: {"KOORD_FAILPOINT": failpoint}}) as on:
        await two_teams(on)
        await on.see(*(pod(f"p{n}", "a", "1") for n in range(6)))
        ends = time.monotonic() + PATIENCE_S
        for cycle in range(1, 7):
            while True:
                assert time.monotonic() < ends
                try:
                    found = await on.request(cycle, (f"p{cycle - 1}",), deadline_s=1)
                except NoResponse:  # the ledger is being started again
                    await asyncio.sleep(0.05)
                    continue
                break
            assert found.charged == {f"p{cycle - 1}": "a"}
            await on.decide(*placed(f"p{cycle - 1}", cycle))
        assert on.supervisor.units[LEDGER].restarts > 0, "the failpoint was never reached"
        assert used(await on.projection(), "a") == {"cpu": 6000}
