"""Reservations on a real API server: the page's example, and their life while services are killed."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from shared.kube.instants import SECOND, instant_text
from tests.cluster.fixtures import StartCluster
from tests.e2e.stage import Stage, pod
from tests.support.kube_system import System, koord, running
from tests.support.waiting import in_thread, until

DOCUMENT = Path(__file__).parents[2] / "docs" / "reservations.md"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
CORES = 4
KILLED = ("gateway", "scheduler", "quota-ledger")


def add_node(cluster: Cluster, name: str) -> None:
    capacity = {"cpu": str(CORES), "memory": "16Gi", "pods": "110"}
    create_nodes(cluster.api, [node_object(name, capacity=capacity)])


@pytest.fixture
async def site(own_cluster: StartCluster, tmp_path: Path) -> AsyncIterator[tuple[Cluster, System]]:
    cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(add_node, cluster, "node-1")
    async with running(cluster, tmp_path, more=("quota-ledger",)) as system:
        yield cluster, system


def blocks() -> list[tuple[str, str]]:
    """The YAML and the commands of the page, in order: (`yaml`, text) or (command, output)."""
    found: list[tuple[str, str]] = []
    for kind, text in re.findall(r"```(yaml|console)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        found += [("yaml", text)] if kind == "yaml" else re.findall(r"\$ kubectl (.*)\n((?:(?!\$ ).*\n)*)", text)
    return found


def without_times(printed: str) -> str:
    """Returns an output without ages, uids and the widths of columns."""
    printed = re.sub(r"(?<=\s)(\d+[smh])+(?=\s+node)", "AGE", printed)
    return re.sub(r" +", " ", re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4,12}){4}", "UID", printed)).strip()


async def test_the_page_and_the_life_of_reservations_while_services_are_killed(
    site: tuple[Cluster, System], tmp_path: Path
) -> None:
    cluster, system = site
    await _the_page(cluster, tmp_path)
    for name in ("web-1", "other", "db-new", "warm"):
        await _stage(cluster).remove(name)
    await _stage(cluster).call("DELETE", f"{RESERVATIONS}/keep-web")
    await _lives(cluster, system, rounds=1, seed=0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_many_lives_of_reservations_while_services_are_killed(site: tuple[Cluster, System]) -> None:
    cluster, system = site
    await asyncio.to_thread(add_node, cluster, "node-2")  # for the second life, beside the owner of the first
    await _lives(cluster, system, rounds=25, seed=1)


async def _the_page(cluster: Cluster, folder: Path) -> None:
    for number, (command, text) in enumerate(blocks()):
        if command == "yaml" and "name: move-db" in text:
            await _begin_move(cluster)
        if command == "yaml" and "name: db-new" in text and "kind: Pod" in text:
            await _stage(cluster).remove("db")
        if command == "yaml":
            (folder / f"{number}.yaml").write_text(text)
            await asyncio.to_thread(cluster.kubectl, "apply", "-n", "default", "-f", str(folder / f"{number}.yaml"))
            continue
        await _prints(cluster, command, without_times(text))


async def _prints(cluster: Cluster, command: str, expected: str) -> None:
    """Waits until a command of kubectl prints the text of the page."""
    arguments = [*command.split(), "-n", "default"]
    found = in_thread(lambda: without_times(cluster.kubectl(*arguments)))
    await until(found, command, holds=lambda printed: printed == expected)


def _stage(cluster: Cluster) -> Stage:
    return Stage(cluster, "default", lambda *_, **__: [])


async def _begin_move(cluster: Cluster) -> None:
    """Runs `db` on the first node, and adds the second."""
    stage = _stage(cluster)
    await stage.remove("web-1")
    await stage.create(pod("db", "2"), pod("web-1", "100m"))
    assert await stage.placed("db") == "node-1"
    await asyncio.to_thread(add_node, cluster, "node-2")


async def _lives(cluster: Cluster, system: System, rounds: int, seed: int) -> None:
    """Creates a Reservation, consumes it, and lets one of the same name expire; services are killed at each step."""
    stage, random = _stage(cluster), Random(seed)
    for round_ in range(rounds):
        kill = [*KILLED] if rounds == 1 else [random.choice(KILLED) for _ in range(3)]
        owner = f"owner-{round_}"
        system.supervisor.kill(kill[0])
        first = await _created(stage, owner)
        assert await _phase(stage, "Available") == first
        await stage.create(pod(owner, "2", labels={"app": owner}))
        system.supervisor.kill(kill[1])
        await stage.placed(owner)
        assert first in stage.pod(owner)["metadata"]["annotations"][ALLOCATED]
        assert await _phase(stage, "Succeeded") == first
        status = (await stage.call("GET", f"{RESERVATIONS}/life"))["status"]
        assert [each["name"] for each in status["currentOwners"]] == [owner]
        await stage.call("DELETE", f"{RESERVATIONS}/life")
        second = await _created(stage, owner)
        assert second != first
        assert await _phase(stage, "Available") == second
        system.supervisor.kill(kill[2])
        past = instant_text(time.time_ns() // SECOND * SECOND)
        await stage.call("PATCH", f"{RESERVATIONS}/life", {"spec": {"expires": past}})
        assert await _phase(stage, "Failed") == second
        conditions = (await stage.call("GET", f"{RESERVATIONS}/life"))["status"]["conditions"]
        assert {each["type"]: each["reason"] for each in conditions}["Ready"] == "Expired"
        await stage.call("DELETE", f"{RESERVATIONS}/life")
        await stage.remove(owner)
        await system.supervisor.wait_leading(240)
    await stage.create(pod("all", str(CORES)))
    assert await stage.placed("all"), "everything that was held is free"
    await koord(system, "audit", "verify")


async def _created(stage: Stage, owner: str) -> str:
    """Creates the Reservation and returns its uid."""
    spec = {
        "owners": [{"labelSelector": {"matchLabels": {"app": owner}}}],
        "template": {"spec": pod("x", "3")["spec"]},
    }
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "life"},
        "spec": spec,
    }
    return str((await stage.call("POST", RESERVATIONS, body))["metadata"]["uid"])


async def _phase(stage: Stage, phase: str) -> str:
    """Waits until the Reservation has the phase, and returns its uid; held capacity never exceeds the nodes'."""

    def found() -> str:
        api = stage.cluster.api
        pods = api.call("GET", stage.path())["items"]
        reservations = api.call("GET", RESERVATIONS)["items"]
        used: dict[str, float] = {}
        for each in pods:
            if each["spec"].get("nodeName") and not each["metadata"].get("deletionTimestamp"):
                size = each["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                cores = int(size[:-1]) / 1000 if size.endswith("m") else int(size)
                used[each["spec"]["nodeName"]] = used.get(each["spec"]["nodeName"], 0) + cores
        assert all(cores <= CORES for cores in used.values()), used
        [one] = [each for each in reservations if each["metadata"]["name"] == "life"]
        return one["metadata"]["uid"] if one.get("status", {}).get("phase") == phase else ""

    return str(await until(in_thread(found), f"phase {phase}"))
