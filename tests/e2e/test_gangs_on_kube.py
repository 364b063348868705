"""Gangs on a real API server: objects as the guides have them, Spark-like and MPI-like jobs, and no gang in part while
pods and nodes come and go and services are killed. `make soak` runs the long forms.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from cli.dev.fake_kubelet import FakeKubelets
from cli.dev.local_control_plane import Cluster
from shared.domain.gang import POD_GROUP_LABEL
from tests.cluster.fixtures import MakeNodes
from tests.e2e.gangs import (
    PREFIX,
    Gang,
    Ground,
    Json,
    bound_members,
    check_first_placements,
    create_group,
    group_status,
    groups_path,
    none_is_partial,
)
from tests.e2e.stage import Stage
from tests.support.kube_system import System, koord, running
from tests.support.waiting import until

KILLED = ("gateway", "scheduler")
FORMS = ("PodGroup", "labels", "annotations")

GATEWAY = {"KOORD_GATEWAY_SHORT_LIST_PERCENT": "100"}
"""Most pods of a run go at once, also while the gateway is away: a list without them is right here."""


@pytest.fixture
async def site(
    kube_cluster: Cluster, kube_nodes: MakeNodes, namespace: str, tmp_path: Path
) -> AsyncIterator[tuple[Stage, System]]:
    kubelets = FakeKubelets(kube_cluster.api)
    async with running(kube_cluster, tmp_path, {"gateway": GATEWAY}) as system:
        kubelets.start()
        yield Stage(kube_cluster, namespace, kube_nodes), system
    kubelets.stop()


async def test_gangs_of_jobs_are_placed_as_a_whole_while_pods_and_nodes_come_and_go(
    site: tuple[Stage, System], tmp_path: Path
) -> None:
    stage, system = site
    await _the_guides_gang(stage, tmp_path)
    await _spark(stage)
    await _mpi(stage)
    await _seeded_run(stage, system, seed=0)
    await _churn(stage, system, size=40, nodes=8, steps=6, seed=0)
    await koord(system, "audit", "verify")


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_no_gang_is_bound_in_part_in_thirty_runs(site: tuple[Stage, System]) -> None:
    for seed in range(1, 31):
        await _seeded_run(*site, seed=seed)
    await koord(site[1], "audit", "verify")


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_a_gang_of_200_is_placed_on_20_nodes_under_churn(site: tuple[Stage, System]) -> None:
    await _churn(*site, size=200, nodes=20, steps=40, seed=1)
    await koord(site[1], "audit", "verify")


async def _the_guides_gang(stage: Stage, folder: Path) -> None:
    """Applies a PodGroup and pods with the fields that the guides show; the first pod waits for the second."""
    ground = Ground(stage, "guide", 2)
    await ground.add_nodes([0])
    amounts = {"cpu": "40m", "memory": "40Mi"}
    group = {"scheduleTimeoutSeconds": 100, "minMember": 2}
    head = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "gang-example"}}
    bodies: list[Json] = [head | {"spec": group}]
    for number in (1, 2):
        body = ground.pod(f"pod-example{number}", labels={POD_GROUP_LABEL: "gang-example"})
        body["spec"]["containers"][0] |= {
            "command": ["sleep", "365d"],
            "imagePullPolicy": "IfNotPresent",
            "resources": {"limits": amounts, "requests": amounts},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
        bodies.append(body | {"spec": body["spec"] | {"restartPolicy": "Always"}})
    for number, body in enumerate(bodies):
        if number == 2:
            await _has(stage, "gang-example", phase="Pending")
            assert not await ground.nodes_of_pods(), "one of two pods is not enough"
        (folder / f"gang-{number}.json").write_text(json.dumps(body))
        file = str(folder / f"gang-{number}.json")
        await asyncio.to_thread(stage.cluster.kubectl, "apply", "-n", stage.namespace, "-f", file)
    await until(ground.nodes_of_pods, "both pods", holds=lambda on: len(on) == 2)
    await _has(stage, "gang-example", phase="Running", running=2, scheduled=2)
    for short in ("pg", "pgs"):
        listed = await asyncio.to_thread(stage.cluster.kubectl, "get", short, "-n", stage.namespace)
        assert "gang-example" in listed
    await _clear(ground, [0])


async def _has(stage: Stage, group: str, **expected: object) -> None:
    await until(
        lambda: group_status(stage, group),
        f"status of {group} with {expected}",
        holds=lambda status: expected.items() <= status.items(),
    )


async def _clear(ground: Ground, nodes: list[int]) -> None:
    for name in await ground.pods():
        await ground.stage.remove(name)
    await ground.remove_nodes(nodes)


async def _spark(stage: Stage) -> None:
    """A driver runs first and creates its executors, of which two would fit: none is bound until all three are."""
    ground = Ground(stage, "spark", 4)
    await ground.add_nodes([0])
    await stage.create(ground.pod("other"), ground.pod("driver"))
    await until(lambda: _phase(stage, "driver"), holds=lambda phase: phase == "Running")
    driver = stage.pod("driver")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver["uid"], "controller": True}
    await create_group(stage, "executors", 3)
    for number in range(3):
        body = ground.pod(f"exec-{number}", labels={POD_GROUP_LABEL: "executors"})
        body["metadata"]["ownerReferences"] = [owner]
        await stage.create(body)
    messages = [await stage.unschedulable(f"exec-{number}") for number in range(3)]
    assert any("Insufficient cpu" in each for each in messages), messages
    assert set(await ground.nodes_of_pods()) == {"driver", "other"}
    await stage.remove("other")
    await until(ground.nodes_of_pods, "executors", holds=lambda on: len(on) == 4)
    await _has(stage, "executors", phase="Running", running=3, scheduled=3, occupiedBy=f"{stage.namespace}/driver")
    for number in range(3):
        await stage.call("PATCH", stage.path("pods", f"exec-{number}") + "/status", {"status": {"phase": "Succeeded"}})
    await _has(stage, "executors", phase="Finished", succeeded=3)
    await _clear(ground, [0])


async def _phase(stage: Stage, name: str) -> str:
    return str((await stage.call("GET", stage.path("pods", name)))["status"]["phase"])


async def _mpi(stage: Stage) -> None:
    """A launcher and four workers are two gangs that need each other: the workers alone fit, and wait."""
    ground = Ground(stage, "mpi", 4)
    await ground.add_nodes([0])
    both = {f"{PREFIX}/groups": json.dumps([f"{stage.namespace}/{name}" for name in ("launcher", "workers")])}
    await create_group(stage, "launcher", 1, both)
    await create_group(stage, "workers", 4, both)
    for number in range(4):
        await stage.create(ground.pod(f"worker-{number}", labels={POD_GROUP_LABEL: "workers"}))
    await stage.create(ground.pod("mpirun", labels={POD_GROUP_LABEL: "launcher"}))
    for name in ("mpirun", *(f"worker-{number}" for number in range(4))):
        await stage.unschedulable(name)
    assert not await ground.nodes_of_pods(), "four of five is not enough"
    await ground.add_nodes([1])
    await until(ground.nodes_of_pods, "launcher and workers", holds=lambda on: len(on) == 5)
    await _has(stage, "launcher", phase="Running", running=1)
    await _has(stage, "workers", phase="Running", running=4)
    await _clear(ground, [0, 1])


async def _seeded_run(stage: Stage, system: System, seed: int) -> None:
    """Gangs that need twice the capacity get their turns, while members are re-created and services are killed.

    A gang that was bound before one of its members was re-created has less than its minimum if another gang has taken
    the place: of those, the log says that they were placed whole.
    """
    chance = Random(seed)
    ground = Ground(stage, f"seed{seed}", 4)
    nodes = [*range(chance.randint(2, 4))]
    await ground.add_nodes(nodes)
    capacity = 4 * len(nodes)
    bodies: list[Json] = []
    gangs: list[Gang] = []
    while sum(gang.minimum for gang in gangs) < 2 * capacity:
        name = f"s{seed}-g{len(gangs)}"
        minimum, form = chance.randint(2, capacity), chance.choice(FORMS)
        members = tuple(f"{name}-{number}" for number in range(minimum + chance.randint(0, 1)))
        gangs.append(Gang(name, minimum, members))
        bodies += [ground.member(each, gangs[-1], form) for each in members]
        if form == "PodGroup":
            await create_group(stage, name, minimum)
    chance.shuffle(bodies)
    intact = gangs
    kills = {chance.randrange(len(bodies)): victim for victim in KILLED}
    for number, body in enumerate(bodies):
        await stage.create(body)
        if number in kills:
            system.supervisor.kill(kills[number])
        if chance.random() < 0.15:
            again = chance.choice(bodies[: number + 1])
            intact = [gang for gang in intact if again["metadata"]["name"] not in gang.members]
            await stage.remove(again["metadata"]["name"])
            await stage.create(again)
    waiting = {gang.name: gang for gang in gangs}
    while waiting:
        on = await until(
            ground.nodes_of_pods,
            f"seed {seed}: a turn of one of {sorted(waiting)}, and no gang in part",
            holds=lambda on: none_is_partial(intact, on) and any(bound_members(each, on) for each in waiting.values()),
        )
        done = [gang for gang in waiting.values() if bound_members(gang, on)]
        if chance.random() < 0.5:
            system.supervisor.kill(chance.choice(KILLED))
        for gang in done:
            del waiting[gang.name]
            for name in gang.members:
                await stage.remove(name)
    await check_first_placements(system, stage, gangs)
    await ground.remove_nodes(nodes)


async def _churn(stage: Stage, system: System, size: int, nodes: int, steps: int, seed: int) -> None:
    """A gang that needs all but a few places of its nodes: nodes, members and other pods come and go, before it fits
    and after it is bound. In the end all members are on nodes that exist.
    """
    chance = Random(seed)
    ground = Ground(stage, f"churn{seed}-{size}", size // nodes + 1)
    gang = Gang(f"churn-{size}", size, tuple(f"churn-{size}-{number}" for number in range(size)))
    await ground.add_nodes(range(nodes - 2))
    there = {*range(nodes - 2)}
    await create_group(stage, gang.name, size)
    await stage.create(*(ground.member(name, gang, "PodGroup") for name in gang.members))
    for _ in range(steps // 2):
        await _one_change(ground, gang, chance, there, nodes - 2)
    assert not bound_members(gang, await ground.nodes_of_pods()), "it does not fit yet"
    await ground.add_nodes({*range(nodes)} - there)
    there = {*range(nodes)}

    async def placed() -> int:
        return bound_members(gang, await ground.nodes_of_pods())

    await until(placed, f"{size} members", holds=lambda found: found == size)
    for step in range(steps // 2):
        await _one_change(ground, gang, chance, there, nodes)
        if step % 10 == 2:
            system.supervisor.kill(chance.choice(KILLED))
    await ground.add_nodes({*range(nodes)} - there)

    async def settled() -> int:
        await _collect(ground, gang, {ground.node(each) for each in range(nodes)})
        return await placed()

    await until(settled, f"{size} members on nodes that exist", holds=lambda found: found == size)
    await check_first_placements(system, stage, [gang])
    await _has(stage, gang.name, phase="Running", scheduled=size)
    await _clear(ground, [*range(nodes)])
    await stage.call("DELETE", groups_path(stage, gang.name))


async def _one_change(ground: Ground, gang: Gang, chance: Random, there: set[int], nodes: int) -> None:
    """Removes or adds a node, re-creates some members, or lets another pod come and go."""
    change = chance.choice(("node", "members", "other"))
    if change == "node":
        number = chance.randrange(nodes)
        if number in there:
            there.remove(number)
            await ground.remove_nodes([number])
            await _collect(ground, gang, {ground.node(each) for each in there})
        else:
            there.add(number)
            await ground.add_nodes([number])
    elif change == "members":
        for name in chance.sample(gang.members, 3):
            await ground.stage.remove(name)
            await ground.stage.create(ground.member(name, gang, "PodGroup"))
    else:
        await ground.stage.create(ground.pod("passing"))
        await asyncio.sleep(chance.random())
        await ground.stage.remove("passing")


async def _collect(ground: Ground, gang: Gang, there: set[str]) -> None:
    """Re-creates members that are on nodes that are gone, as the pod collector and the owner of the pods do."""
    for name, node in (await ground.nodes_of_pods()).items():
        if node not in there:
            await ground.stage.remove(name)
            if name in gang.members:
                await ground.stage.create(ground.member(name, gang, "PodGroup"))
