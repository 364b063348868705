"""Moves by drains and PodMigrationJobs on a real log: `koord get evictions`, `why eviction` and `why pod`."""

import asyncio
import json
import time

from shared.events import Draft
from shared.events.migration import MigrationArbitrated, MigrationEnded
from tests.integration.cli.recorded_log import Log, append, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.scheduling_world import World, node, pod


def world() -> World:
    """A node with two pods."""
    found = World()
    begin(found, "cluster", "scheduling")
    found.add_node(node("n", cpu="8"))
    for name in ("own", "other"):
        found.add_pod(pod(name, cpu="1", on="n", phase="Running"))
    return found


async def test_a_failed_job_is_listed_and_explains_its_pod(database: str) -> None:
    log = Log(database)
    await write(await asyncio.to_thread(world), database)
    empty = await run(log, "get", "evictions")
    assert "No evictions found" in empty.stderr
    failed = MigrationEnded(
        job="move-own", job_uid="u", phase="Failed", reason="ForbiddenMigratePod", message="no owner", pod="d/own",
        pod_uid="own",
    )  # fmt: skip
    begun = MigrationArbitrated(job="drain-7-other-1", job_uid="v", pod="d/other")
    await append(database, "descheduling", [Draft(failed), Draft(begun)], time.time_ns())
    began = time.monotonic()
    refused = await run(log, "dev", "patch", "node", "n", "{}")
    assert "the log is that of a real cluster, which no simulator serves: use kubectl" in refused.stderr
    assert time.monotonic() - began < 5, "it does not wait for a response"
    listed = json.loads((await run(log, "get", "evictions", "-o", "json")).stdout)["items"]
    assert {each["name"]: (each["plugin"], each["state"], each["nodes"]) for each in listed} == {
        "move-own": ("PodMigrationJob", "failed", []),
        "drain-7-other-1": ("drain", "open", ["n"]),
    }
    text = "PodMigrationJob move-own failed (ForbiddenMigratePod): no owner"
    for name in ("d/own", "move-own"):
        shown = await run(log, "why", "eviction", name)
        assert shown.stdout.startswith(f"d/own (own): {text}\n"), shown.stderr
    shown = await run(log, "why", "eviction", "drain-7-other-1")
    assert "drain-7-other-1 has evicted nothing yet; `koord why pod d/other` shows how far it is" in shown.stderr
    summary = (await run(log, "why", "pod", "d/own")).stdout.partition("\n")[0]
    assert summary.endswith(f"; the last move of it failed: {text}")
