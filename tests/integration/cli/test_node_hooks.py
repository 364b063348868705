"""`koord node hooks` on a real log."""

import asyncio
import json
import time
from typing import Any

import pytest

from shared.events import Draft
from shared.events.nodes import ContainerHooksReported, HookedContainer
from shared.kube.instants import SECOND
from tests.integration.cli.recorded_log import Log, append, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.scheduling_world import World, node

NOW_NS = 1_795_000_000 * SECOND


def _world() -> World:
    world = World()
    world.now_ns = time.time_ns() - 600 * SECOND
    begin(world, "cluster", "scheduling")
    world.add_node(node("busy", cpu="8"))
    world.add_node(node("idle", cpu="8"))
    world.read()
    return world


def hooked(number: int, state: str, **fields: Any) -> HookedContainer:
    name = f"p{number}"
    return HookedContainer(
        container_id=f"id-{number}", pod_uid=name, pod=f"d/{name}", container="main", state=state,
        at_ns=NOW_NS + number * SECOND, **fields,
    )  # fmt: skip


@pytest.fixture
async def log(database: str) -> Log:
    await write(await asyncio.to_thread(_world), database)
    failed = {"BatchResource": "its values are being set"}
    first = (
        hooked(1, "applied", route="nri", hooks=("BatchResource", "OOMScoreAdj")),
        hooked(2, "notApplied", route="reconciler", failed=failed),
        hooked(3, "notApplied", failed={"hooks": "the container ended before the agent saw it"}),
    )
    second = (hooked(2, "repaired", route="reconciler", hooks=("BatchResource",), after_ms=3_200),)
    await append(database, "nodes-0", [
        Draft(ContainerHooksReported(node="busy", boot="b", number=number, at_ns=NOW_NS, containers=containers))
        for number, containers in ((1, first), (2, second))
    ], NOW_NS)  # fmt: skip
    return Log(database)


async def test_each_container_has_its_newest_record(log: Log) -> None:
    result = await run(log, "node", "hooks", "busy")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines() if line]
    assert lines == [
        "busy: 3 containers: 1 applied, 1 repaired, 1 not applied",
        "POD CONTAINER ROUTE STATE HOOKS AT",
        "d/p3 main - not applied without hooks: the container ended before the agent saw it 2026-11-18T11:06:43.000Z",
        "d/p2 main reconciler repaired after 3.2 s BatchResource 2026-11-18T11:06:42.000Z",
        "d/p1 main nri applied BatchResource, OOMScoreAdj 2026-11-18T11:06:41.000Z",
    ]
    document = json.loads((await run(log, "node", "hooks", "node/busy", "--limit", "2", "-o", "json")).stdout)
    assert document["counts"] == {"applied": 1, "repaired": 1, "notApplied": 1}
    assert [each["container_id"] for each in document["containers"]] == ["id-3", "id-2"]
    assert document["containers"][1]["after_ms"] == 3_200
    assert "the newest 1 are shown, --limit shows more" in (await run(log, "node", "hooks", "busy", "--limit=1")).stdout


async def test_a_node_without_records_and_one_that_is_unknown_have_their_texts(log: Log) -> None:
    result = await run(log, "node", "hooks", "idle")
    assert result.exit_code == 0
    assert "no container of node idle has a record of its hooks" in result.stdout
    result = await run(log, "node", "hooks", "bussy")
    assert result.exit_code == 1
    assert "there is no node 'bussy'; perhaps 'busy' is meant;" in " ".join(result.stderr.split())
