"""`koord pending` on a real log."""

import asyncio
import json
import re
import socket
import time

import pytest

from shared.domain import gang
from shared.kube.elastic_quota import PREEMPTIBLE, QUOTA_NAME
from shared.kube.instants import SECOND
from shared.log.service_store import ServiceStore
from tests.integration.cli.recorded_log import Log, run
from tests.integration.cli.recorded_world import begin, write
from tests.support.reservations import observe, reservation
from tests.support.scheduling_world import pod
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota


class _Recorded(Teams):
    """A world whose logs begin as in a database."""

    def __init__(self) -> None:
        self._has_begun = False
        super().__init__(quota("small", "1", "2"), quota("tiny", "1", "2"))
        self.now_ns = time.time_ns() - 20 * SECOND  # after the backoff, and long before the next attempt

    def add_node(self, node: object) -> None:
        if not self._has_begun:
            self._has_begun = True
            begin(self, "cluster", "scheduling")
        super().add_node(node)  # type: ignore[arg-type]


def _waiting() -> Teams:
    """A pod of each kind of wait."""
    world = _Recorded()
    world.add_pod(pod("uses", cpu="2", labels={QUOTA_NAME: "small"}, priority=9000))
    world.add_pod(pod("large", cpu="100", labels={QUOTA_NAME: "smal"}))
    world.add_pod(pod("both", cpu="90", labels={QUOTA_NAME: "tiny"}))
    world.add_pod(pod("fixed", cpu="91", labels={QUOTA_NAME: "tiny", PREEMPTIBLE: "false"}))
    world.add_pod(pod("short", cpu="1", labels={QUOTA_NAME: "small"}))
    world.add_pod(pod("later", gates=("example.com/later",)))
    for name in ("a", "b"):
        world.add_pod(pod(name, annotations={gang.NAME: "job", gang.MINIMUM: "3"}))
    observe(world, reservation("amount", "many"))
    observe(world, reservation("shape", owners=[{"labelSelector": "app"}]))
    world.read()
    for _ in range(3):  # a cycle evaluates a few new classes
        world.cycle()
    return world


def _with_a_late_pod() -> Teams:
    """As above, and a pod that no cycle has looked at."""
    world = _waiting()
    world.add_pod(pod("late"))
    return world


@pytest.fixture
async def log(database: str) -> Log:
    await write(await asyncio.to_thread(_waiting), database)
    return Log(database)


async def test_pending_pods_are_listed_in_order_with_what_they_wait_for(log: Log) -> None:
    result = await run(log, "pending", "-n", "d")
    assert result.exit_code == 0, result.stderr
    header, *lines = result.stdout.splitlines()
    assert header.split() == ["PLACE", "NAME", "SINCE", "QUOTA", "GANG", "WAITS", "FOR"]
    rows = {line.split()[1]: line for line in lines}
    assert list(rows) == ["large", "both", "fixed", "uses", "short", "later", "a", "b"]
    assert "NodeResourcesFit: Insufficient cpu (2 of 2 nodes)" in rows["large"]
    assert "ElasticQuota: Insufficient quotas, quotaName: small" in rows["short"]
    assert rows["short"].endswith("short of cpu 1")
    of_nodes = "NodeResourcesFit: Insufficient cpu (2 of 2 nodes)"
    assert rows["both"].endswith(f"  ElasticQuota: tiny is short of cpu 88; {of_nodes}"), (
        "the quota keeps it on any node"
    )
    assert rows["fixed"].endswith(f"  ElasticQuota: pods that must not be preempted use the min of tiny; {of_nodes}")
    assert "scheduling gates: example.com/later" in rows["later"]
    assert "job" in rows["a"].split()
    assert rows["a"].endswith("  pods of its gang: gang d/job has 2 of 3 pods"), "below `WAITS FOR`"
    assert "the binding is under way" in rows["uses"]
    assert (await run(log, "pending", "short", "-n", "d", "--no-headers", "-o", "wide")).stdout.split()[:2] == [
        "-",
        "short",
    ]


def _without_nodes() -> Teams:
    """A pod and a gang that were tried in a cluster without nodes."""
    world = _Recorded()
    world.add_pod(pod("alone"))
    for name in ("a", "b"):
        world.add_pod(pod(name, annotations={gang.NAME: "job", gang.MINIMUM: "2"}))
    for name in ("n0", "n1"):
        world.drop_node(name)
    world.read()
    for _ in range(3):
        world.cycle()
    assert not world.view.nodes
    return world


async def test_a_cluster_without_nodes_is_named_in_every_view(database: str) -> None:
    await write(await asyncio.to_thread(_without_nodes), database)
    log = Log(database)
    listed = json.loads((await run(log, "pending", "-A", "-o", "json")).stdout)["items"]
    words = "the cluster has no nodes: it is tried again once there is one"
    assert {each["name"]: each["waits_for"] for each in listed} == {"alone": words, "a": words, "b": words}
    assert "\n  check: the cluster has no nodes\n" in (await run(log, "why", "pod", "alone", "-n", "d")).stdout
    of_gang = (await run(log, "why", "gang", "job", "-n", "d")).stdout
    assert "\n  check: the cluster has no nodes\n" in of_gang
    assert "estimated start" not in of_gang
    planned = await run(log, "defrag", "--for", "alone", "-n", "d", "--dry-run")
    assert planned.stdout == "d/alone: no move helps: the cluster has no nodes\n"
    doctor = " ".join((await run(log, "doctor")).stdout.split())
    assert "WARNING nodes: the cluster has no nodes, and 3 pods wait for one do: join nodes to the cluster" in doctor


def _with_another_fault_of_its_quota() -> Teams:
    """A pod of a rejected quota that was tried before the quota's fault was corrected, and there was another one."""
    world = _Recorded()
    world.observe(quota("team", "1", "many"))
    world.add_pod(pod("web", cpu="1", labels={QUOTA_NAME: "team"}))
    world.read()
    world.cycle()
    world.observe(quota("team", "some", "1"))
    world.read()
    return world


async def test_the_present_reason_of_a_pod_comes_before_that_of_its_last_cycle(database: str) -> None:
    """The user saw a remedy that he had carried out."""
    await write(await asyncio.to_thread(_with_another_fault_of_its_quota), database)
    summary = (await run(Log(database), "why", "pod", "web", "-n", "d")).stdout.splitlines()[0]
    present, _, before = summary.partition("; before, at ")
    assert "its quota team is rejected, and it waits: " in present
    assert "some" in present
    assert "many" not in present
    assert "many" in before
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: cycle 1 found no node", before)


async def test_a_scheduler_that_hangs_is_named_beside_what_pods_wait_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(await asyncio.to_thread(_with_a_late_pod), database)
    log = Log(database)
    assert (await run(log, "pending", "late", "-n", "d")).stderr == ""
    with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts into its backlog, and never answers
        monkeypatch.setenv("KOORD_STATUSZ", f"scheduler=127.0.0.1:{listening.getsockname()[1]}")
        views = [await run(log, *view, "-n", "d") for view in (("pending", "late"), ("why", "pod", "late"))]
    for found in views:
        assert found.exit_code == 0
        assert "it is tried in one of the next cycles" in found.stdout
        assert found.stderr.startswith("koord: the scheduler does not respond: no pod is placed until it does")


async def test_programs_get_integers_instants_and_the_reasons_one_by_one(log: Log) -> None:
    items = {each["name"]: each for each in json.loads((await run(log, "pending", "-A", "-o", "json")).stdout)["items"]}
    assert (items["large"]["place"], items["large"]["state"], items["large"]["attempts"]) == (1, "AwaitsChange", 1)
    assert items["large"]["refused_by"] == [
        {"plugin": "NodeResourcesFit", "code": "InsufficientResource", "text": "Insufficient cpu", "detail": "cpu", "nodes": 2}
    ]  # fmt: skip
    assert items["large"]["since"].endswith("Z")
    assert (items["short"]["quota"], items["short"]["short"]) == ("small", {"cpu": 1000})
    assert (items["a"]["gang"], items["a"]["state"]) == ("d/job", "GangIncomplete")
    names = (await run(log, "pending", "-A", "-o", "name")).stdout.splitlines()
    assert names[0] == "pod/d/large"
    assert "NAMESPACE" in (await run(log, "pending", "-A")).stdout.splitlines()[0]


async def test_a_pod_that_no_node_takes_and_its_quota_neither_is_explained_with_both(log: Log) -> None:
    item = json.loads((await run(log, "pending", "both", "-n", "d", "-o", "json")).stdout)
    assert (item["state"], item["short"]) == ("AwaitsChange", {"cpu": 88_000})
    why = json.loads((await run(log, "why", "pod", "both", "-n", "d", "-o", "json")).stdout)
    assert "Insufficient cpu" in why["summary"]
    assert why["summary"].endswith("; its quota tiny is short of cpu 88, too")
    of_fixed = json.loads((await run(log, "why", "pod", "fixed", "-n", "d", "-o", "json")).stdout)["summary"]
    assert of_fixed.endswith("; pods that must not be preempted use the min of its quota tiny, too")
    of_quota = json.loads((await run(log, "why", "pod", "short", "-n", "d", "-o", "json")).stdout)["summary"]
    assert of_quota.count("quota") == 2, of_quota


async def test_a_namespace_or_a_name_without_pending_pods_is_reported(log: Log) -> None:
    nothing = await run(log, "pending")
    assert (nothing.exit_code, nothing.stderr) == (
        0,
        "No pending pods found in namespace default; -A shows those of all.\n",
    )
    absent = await run(log, "pending", "d/nosuch")
    assert (absent.exit_code, absent.stderr) == (
        1,
        "koord: there is no pending pod 'd/nosuch'; `koord pending -A` shows those there are\n",
    )


async def test_answers_begin_at_the_newest_snapshot(log: Log) -> None:
    from cli.scheduling.recorded_state import scheduler_state
    from services.scheduler.state.scheduler_state import SchedulerState
    from shared.log.admin.session import reading
    from shared.log.snapshot import pack_in_child

    before = (await run(log, "pending", "-A", "-o", "json")).stdout
    async with reading(log.url) as reader:
        state = await scheduler_state(reader)
        positions = {name: await reader.head(name) for name in state.positions}
        digest, packed = await pack_in_child(state)
        store = ServiceStore(reader.database, "scheduler")
        await store.write_snapshot(positions, SchedulerState.SCHEMA, "test", packed, digest)
        restored = await scheduler_state(reader)
    assert restored.encode() == state.encode()
    assert (await run(log, "pending", "-A", "-o", "json")).stdout == before


async def test_a_pod_a_node_and_a_quota_are_described(log: Log) -> None:
    short = await run(log, "describe", "pod", "short", "-n", "d")
    assert short.exit_code == 0, short.stderr
    for line in (
        "Quota:       small, not charged",
        "Requests:    cpu 1, memory 512Mi",
        "  ElasticQuota      2  Insufficient",
    ):
        assert line in short.stdout, short.stdout
    large = await run(log, "describe", "pod", "large", "-n", "d")
    assert "koordinator-default-quota, not charged; its label names smal, which is not in force" in large.stdout
    node = await run(log, "describe", "node", "n1")
    assert node.exit_code == 0, node.stderr
    assert "cpu              -           64          2" in node.stdout, node.stdout
    assert "  d/uses (placed)    2   512Mi" in node.stdout
    small = await run(log, "describe", "quota", "small")
    assert small.exit_code == 0, small.stderr
    assert "  cpu         1    2        2     2         1     0        1\n" in small.stdout, small.stdout
    assert "  d/short  waits for  cpu 1\n" in small.stdout
    assert "RuntimeRecomputed" not in small.stdout
    for kind, hint in (("node", "perhaps 'n1' is meant"), ("quota", "the ledger has no quota 'n11'")):
        absent = await run(log, "describe", kind, "n11")
        assert (absent.exit_code, hint in absent.stderr) == (1, True), absent.stderr


async def test_reservations_that_cannot_be_placed_are_listed_and_named_by_the_doctor(log: Log) -> None:
    *_, amount, shape = (await run(log, "pending", "-A", "--no-headers")).stdout.splitlines()
    assert "reservation/amount" in amount
    assert "it is not placed: " in amount
    assert "'many'" in amount
    assert "reservation/shape" in shape
    assert "it is not placed: the object cannot be read: " in shape
    for line in (amount, shape):
        assert re.fullmatch(r"\d+ d( \d+ h)?|[\d.]+ [smh].*", line.partition("  ")[2].split("  ")[2].strip()), line
    listed = (await run(log, "get", "reservations", "--no-headers")).stdout.splitlines()
    assert [line.split()[:2] for line in listed] == [["amount", "Pending"], ["shape", "Pending"]]
    doctor = json.loads((await run(log, "doctor", "-o", "json")).stdout)
    found = [each["what"] for each in doctor if each["what"].startswith("Reservation ")]
    assert [each.partition(": ")[0] for each in found] == [
        "Reservation amount is not placed",
        "Reservation shape is not placed",
    ]
