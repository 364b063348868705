"""Backfill on a real API server: pods come behind a gang that waits for a job to end, and only those pass that do not
delay it.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from cli.dev.fake_kubelet import FakeKubelets
from cli.dev.local_control_plane import Cluster
from shared.events.scheduling import PodPlaced
from tests.cluster.fixtures import MakeNodes
from tests.e2e.gangs import Gang, Ground, create_group
from tests.e2e.stage import Stage
from tests.support.kube_system import System, koord, running
from tests.support.waiting import until

BACKFILL = {"scheduler": {"KOORD_SCHEDULER_BACKFILL": "true"}}
ENDS = {"restartPolicy": "Never"}


@pytest.fixture
async def site(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> AsyncIterator[tuple[Stage, System]]:
    kubelets = FakeKubelets(kube_cluster.api)
    async with running(kube_cluster, tmp_path, BACKFILL) as system:
        kubelets.start()
        yield Stage(kube_cluster, namespace, kube_nodes), system
    kubelets.stop()


async def test_only_pods_that_end_before_the_planned_start_of_a_gang_pass_it(site: tuple[Stage, System]) -> None:
    stage, system = site
    ground = Ground(stage, "backfill", 4)
    await ground.add_nodes([0, 1])
    await stage.create(ground.pod("job", cpu="3", activeDeadlineSeconds=3600, **ENDS))
    await _runs(stage, "job")
    gang = Gang("train", 8, tuple(f"train-{number}" for number in range(8)))
    await create_group(stage, gang.name, gang.minimum)
    await stage.create(*(ground.member(name, gang, "PodGroup") for name in gang.members))
    await stage.unschedulable(gang.members[-1])
    await stage.create(ground.pod("service"), ground.pod("short", cpu="2", activeDeadlineSeconds=600, **ENDS))
    await stage.placed("short")
    assert f"kept for the planned start of {stage.namespace}/train" in await stage.unschedulable("service")
    assert await _passed(system, stage, "short") == {f"{stage.namespace}/train": "EndsBefore"}
    why = json.loads(await koord(system, "why", "gang", f"{stage.namespace}/train", "-o", "json"))
    assert why["planned_start"]["waits_for"] == [f"{stage.namespace}/job"], why

    await stage.remove("job")
    await stage.remove("short")
    on = await until(ground.nodes_of_pods, "the whole gang", holds=lambda on: len(on) == gang.minimum)
    assert on.keys() == {*gang.members}, "the service has waited behind it"
    await stage.remove(gang.members[0])
    await stage.placed("service")
    await koord(system, "audit", "verify")
    for name in (*gang.members[1:], "service"):
        await stage.remove(name)
    await ground.remove_nodes([0, 1])


async def _runs(stage: Stage, name: str) -> None:
    async def phase() -> str:
        return str((await stage.call("GET", stage.path("pods", name)))["status"]["phase"])

    await until(phase, f"{name} runs", holds=lambda found: found == "Running")


async def _passed(system: System, stage: Stage, name: str) -> dict[str, str]:
    """Returns why the placement of a pod delays no planned start, by unit."""
    rows = [row async for row in system.log.rows(context="scheduling", kind="PodPlaced.v1")]
    placed = (msgspec.json.decode(row.data, type=PodPlaced) for row in rows)
    [found] = [each.passes for each in placed if each.pod == f"{stage.namespace}/{name}"]
    return found
