"""Batch pods do not slow down a service beside them, as long as best effort is suppressed."""

import asyncio
import os
from pathlib import Path
from statistics import median

import pytest

from cli.dev.node.kubelet_node import RealNode
from tests.node.burst_experiment import Burst, burst
from tests.node.hooked_containers import connections
from tests.node.kill_services import VICTIMS, kill_at_random, kill_in_turn, watched
from tests.node.koordstream_on_node import site
from tests.node.latency_experiment import COLOCATED, Pace, Service, measured, service_in
from tests.support.waiting import until

EXAMPLES = Path(__file__).parents[2] / "k8s" / "examples"
SPACE = "beside"
WEIGHT = 8 * 1024
"""Shares of the node's cgroup against 1024 of each process beside it."""


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_service_beside_suppressed_batch_pods_responds_as_if_it_were_alone(
    real_node: RealNode, tmp_path: Path
) -> None:
    """Runs three times three turns. A turn compares measurements within a minute; of a run the middle turn counts.

    Other load on this machine counts little, but it must leave cpu idle: else no turn is quiet.
    """
    real_node.cluster.create_namespace(SPACE, COLOCATED)
    real_node.cluster.apply(EXAMPLES / "webhooks" / "colocation-profile.yaml")
    async with site(real_node, tmp_path) as there:
        service = await service_in(there, SPACE)
        (real_node.tree.folder("cpu") / "cpu.shares").write_text(str(WEIGHT))
        runs = [[await measured(service, Pace(20)) for _ in range(3)] for _ in range(3)]
    ratios = [
        [median(turn[name]["p99_us"] / turn["quiet"]["p99_us"] for turn in turns) for name in ("held", "free")]
        for turns in runs
    ]
    print(ratios)
    for held, free in ratios:
        assert held <= 1.2, ratios
        assert free >= 1.5, ratios


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_killed_services_do_not_slow_a_service_down(real_node: RealNode, tmp_path: Path) -> None:
    """Runs three turns of a quiet minute and a minute with batch pods and kills of services, the agent and NATS."""
    namespace = f"{SPACE}-kills"
    real_node.cluster.create_namespace(namespace, COLOCATED)
    real_node.cluster.apply(EXAMPLES / "webhooks" / "colocation-profile.yaml")
    async with site(real_node, tmp_path) as there:
        service = await service_in(there, namespace)
        (real_node.tree.folder("cpu") / "cpu.shares").write_text(str(WEIGHT))
        await service.hold(on=True)
        turns = [await _with_kills(service, seed) for seed in range(3)]
        await kill_in_turn(service, VICTIMS)
        await service.hold(on=False)
    ratios = [held / quiet for quiet, held in turns]
    print(turns, ratios)
    assert median(ratios) <= 1.2, turns


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a_starting_burst_slows_a_service_down_less_where_containers_are_bounded_from_their_start(
    real_node: RealNode, tmp_path: Path
) -> None:
    """Runs three turns, each with NRI and with the reconciler alone; suppression is off, so that quotas alone bound."""
    namespace = f"{SPACE}-burst"
    real_node.cluster.create_namespace(namespace, COLOCATED)
    real_node.cluster.apply(EXAMPLES / "webhooks" / "colocation-profile.yaml")
    agent = {"NRI_SOCKET": str(real_node.folder / "nri.sock")}
    found: dict[bool, list[Burst]] = {True: [], False: []}
    async with site(real_node, tmp_path, agent) as there:
        service = await service_in(there, namespace)
        (real_node.tree.folder("cpu") / "cpu.shares").write_text(str(WEIGHT))
        await until(lambda: connections(there) > 0, "connection of the agent to the runtime")
        for turn in range(3):
            for nri, each in found.items():
                each.append(await burst(service, turn, nri=nri))
                print("NRI" if nri else "reconciler", each[-1], os.getloadavg())
    ratios = {nri: median(one.ratio for one in each) for nri, each in found.items()}
    print({"NRI" if nri else "reconciler": ratio for nri, ratio in ratios.items()})
    assert all(each.right == each.started for each in found[True]), found
    assert not any(each.right == each.started for each in found[False]), found
    assert ratios[True] < ratios[False], found


async def _with_kills(service: Service, seed: int) -> tuple[int, int]:
    """Returns p99 of a quiet minute, and of one with suppressed batch pods and thirteen kills."""
    pace = Pace(60)
    await asyncio.sleep(pace.settles_s)
    quiet = await service.latency(pace)
    await service.burn(2)
    async with watched(service):
        await asyncio.sleep(pace.settles_s)
        held, _ = await asyncio.gather(
            service.latency(pace), kill_at_random(service.there, seed, 13, pace.length_s - 10)
        )
    await service.burn(0)
    await service.there.system.supervisor.wait_leading(240)
    return quiet["p99_us"], held["p99_us"]
