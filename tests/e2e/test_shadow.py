"""Shadow mode beside a real kube-scheduler: it follows and compares, and writes nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.bench.e2e import UNLIMITED
from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.service import SERVICE
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import EVENT_TYPES, Event
from shared.events.cluster import OUTCOMES, BindSuppressed, DesiredStateSuppressed, InitialListCompleted
from shared.events.scheduling import PlacementCompared, PodPlaced
from shared.kube.quantity import amount, nanos
from shared.log.codec import Codec
from shared.log.position import Position
from tests.cluster.fixtures import StartCluster
from tests.support.kube_system import System, koord, running
from tests.support.pods import written_pod
from tests.support.waiting import in_thread, until

ACCOUNT = ("koordinator-system", "koordstream-shadow")
USER = "system:serviceaccount:koordinator-system:koordstream-shadow"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
SHADOW = {
    "gateway": {"KOORD_GATEWAY_SHADOW": "true"},
    "scheduler": {"KOORD_SCHEDULER_SHADOW_SCHEDULER": "default-scheduler"},
}
PODS = "/api/v1/namespaces/shop/pods"
BEFORE, WATCHED, DISTURBED, AFTER = 20, 700, 200, 80
ALL = BEFORE + WATCHED + DISTURBED + AFTER
SIZES = (("100m", "128Mi"), ("500m", "1Gi"), ("1", "512Mi"), ("250m", "3Gi"))


def shop_pod(name: str, cpu: str, memory: str, scheduler: str = "default-scheduler") -> dict[str, Any]:
    return written_pod(name, requests={"cpu": cpu, "memory": memory}, schedulerName=scheduler)


def create_pods(cluster: Cluster, names: Sequence[str]) -> None:
    """Creates pods as fast as the API accepts them over four connections."""

    def create(share: Sequence[str]) -> None:
        with cluster.api.session() as session:
            for name in share:
                session.call("POST", PODS, shop_pod(name, *SIZES[len(name + name[-1]) % 2 + 2 * (ord(name[-1]) % 2)]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, [names[start::4] for start in range(4)]))


def api_pods(cluster: Cluster) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.api.call("GET", PODS)["items"]
    return items


def all_bound(cluster: Cluster, count: int) -> bool:
    selector = "fieldSelector=spec.nodeName%3D,spec.schedulerName%3Ddefault-scheduler"
    waiting = cluster.api.call("GET", f"{PODS}?{selector}&limit=1")
    return not waiting["items"] and len(api_pods(cluster)) >= count


def api_sums(cluster: Cluster) -> dict[str, tuple[int, int, int]]:
    """Returns node -> number of pods on it that have not ended, and their requests: milli-cores and bytes."""
    sums: dict[str, tuple[int, int, int]] = {}
    for pod in cluster.api.call("GET", "/api/v1/pods")["items"]:
        node = pod["spec"].get("nodeName")
        if node and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            requests = pod["spec"]["containers"][0]["resources"]["requests"]
            pods, cpu, memory = sums.get(node, (0, 0, 0))
            sums[node] = (
                pods + 1,
                cpu + amount("cpu", nanos(requests["cpu"])),
                memory + amount("memory", nanos(requests["memory"])),
            )
    return sums


async def our_sums(system: System) -> dict[str, tuple[int, int, int]]:
    """Returns the same by our State, folded from the log."""
    view = SchedulerState()
    for context, kinds in SERVICE.member(0, 1).follows.items():
        head = (await system.log.head(context)).seq
        async for page in system.log.pages(context, Position(), head, Codec(kinds)):
            for record in page.records:
                view.apply(record)
    cache = CycleInputs(view, config_of(view).profiles)
    cache.settle()
    table = cache.table
    return {
        name: (int(table.pods[row]), int(table.requested[row, 0]), int(table.requested[row, 1]))
        for name, row in table.rows.items()
        if table.pods[row]
    }


async def events(system: System, context: str, *kinds: type[Event]) -> list[Any]:
    return [
        msgspec.json.decode(row.data, type=EVENT_TYPES[row.type])
        for kind in kinds
        async for row in system.log.rows(context=context, kind=kind.type_name())
    ]


async def comparisons(system: System) -> list[PlacementCompared]:
    return await events(system, "scheduling", PlacementCompared)


@pytest.mark.timeout(1800)
async def test_a_thousand_pods_of_a_real_kube_scheduler_are_followed_exactly_and_nothing_is_written(
    own_cluster: StartCluster, tmp_path: Path
) -> None:
    policy, audit = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(json.dumps(POLICY))
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={audit}"]
    cluster = await asyncio.to_thread(own_cluster, installed=True, apiserver_flags=flags)
    await asyncio.to_thread(cluster.create_namespace, "shop")
    nodes = [node_object(f"small-{i:02}", capacity={"cpu": "16", "memory": "64Gi"}) for i in range(30)]
    nodes += [node_object(f"large-{i:02}", capacity={"cpu": "64", "memory": "128Gi"}) for i in range(10)]
    await asyncio.to_thread(create_nodes, cluster.api, nodes)
    await asyncio.to_thread(cluster.start_scheduler, *UNLIMITED)
    await asyncio.to_thread(create_pods, cluster, [f"before-{i}" for i in range(BEFORE)])
    await until(in_thread(lambda: all_bound(cluster, BEFORE)), "binding of the first pods")

    async with running(cluster, tmp_path, SHADOW, ACCOUNT) as system:
        await until(lambda: events(system, "cluster", InitialListCompleted), "the first lists")

        # Each binding from here on is compared. Ours are decided as always, and suppressed.
        ours, too_large = (
            shop_pod("ours", "1", "1Gi", "koord-scheduler"),
            shop_pod("too-large", "99", "1Gi", "koord-scheduler"),
        )
        for pod in (ours, too_large):
            await asyncio.to_thread(cluster.api.call, "POST", PODS, pod)
        await asyncio.to_thread(create_pods, cluster, [f"watched-{i}" for i in range(WATCHED)])
        await until(in_thread(lambda: all_bound(cluster, BEFORE + WATCHED)), "binding of the watched pods")
        await _until_compared(system, WATCHED)
        found = json.loads(await koord(system, "shadow", "report", "-o", "json"))
        assert (found["compared"], found["not_compared"]) == (WATCHED, {"BoundBefore": BEFORE})

        # Bindings while our scheduler is away are counted.
        creating = asyncio.create_task(
            asyncio.to_thread(create_pods, cluster, [f"disturbed-{i}" for i in range(DISTURBED)])
        )
        system.supervisor.kill("scheduler")
        await creating
        await until(
            in_thread(lambda: all_bound(cluster, BEFORE + WATCHED + DISTURBED)),
            "binding of the disturbed pods",
        )
        await until(lambda: system.supervisor.units["scheduler"].state == "leading", "successor")
        await asyncio.to_thread(create_pods, cluster, [f"after-{i}" for i in range(AFTER)])
        await until(in_thread(lambda: all_bound(cluster, ALL)), "binding of the last pods")
        for name in ("watched-1", "watched-2", "disturbed-3"):
            await asyncio.to_thread(cluster.api.call, "DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        ended = {"status": {"phase": "Succeeded"}}
        for name in ("watched-3", "before-4"):
            await asyncio.to_thread(cluster.api.call, "PATCH", f"{PODS}/{name}/status", ended)

        expected = await asyncio.to_thread(api_sums, cluster)
        await until(lambda: our_sums(system), "the API's sums", holds=lambda sums: sums == expected)
        assert sum(pods for pods, _, _ in expected.values()) == ALL - 5

        await _until_quiet(system)
        compared = await comparisons(system)
        assert len({one.pod_uid for one in compared}) == len(compared), "each pod once"
        assert len(compared) >= WATCHED + AFTER, "the successor continued to compare"
        assert all(one.evaluation.nodes == len(nodes) for one in compared)
        found = json.loads(await koord(system, "shadow", "report", "-o", "json"))
        assert found["compared"] == len(compared)
        assert found["compared"] + sum(found["not_compared"].values()) == ALL
        kinds = ("same_node", "equal_score", "lower_score", "refused", "found_none")
        assert sum(found[kind] for kind in kinds) == len(compared)
        assert {load["node"]: load["theirs"]["cpu"] for load in found["nodes"] if load["theirs"]["cpu"]} == {
            node: cpu for node, (_, cpu, _) in expected.items()
        }
        table = await koord(system, "shadow", "report")
        for words in (f"{len(compared):,} placements of default-scheduler", "the node we would have chosen", "STDDEV"):
            assert words in table, table

        placed = await events(system, "scheduling", PodPlaced)
        assert [one.pod for one in placed] == ["shop/ours"], "suppressed, and not tried again"
        outcomes = await events(system, "cluster", *OUTCOMES)
        assert {type(one) for one in outcomes} == {BindSuppressed, DesiredStateSuppressed}
        assert "suppressed" in await koord(system, "why", "pod", "shop/ours", "-o", "json")
        assert "default-scheduler bound it to" in await koord(system, "why", "pod", "shop/watched-5")
        gateway = system.supervisor.units["gateway"]
        assert gateway.restarts == 0
        assert gateway.status is not None
        assert [text.partition(":")[0] for text in gateway.status.halted] == ["shadow mode"]

    _assert_nothing_was_written(cluster, audit)


async def _until_compared(system: System, count: int) -> None:
    await until(lambda: comparisons(system), f"{count} comparisons", holds=lambda found: len(found) >= count)


async def _until_quiet(system: System) -> None:
    """Waits until nothing was appended to `scheduling` for a while: every comparison is recorded then."""
    before = Position()
    async with asyncio.timeout(240):
        while before != (head := await system.log.head("scheduling")):
            before = head
            await asyncio.sleep(1)


def _assert_nothing_was_written(cluster: Cluster, audit: Path) -> None:
    verbs = Counter(json.loads(line)["verb"] for line in audit.read_text().splitlines())
    assert verbs.keys() == {"list", "watch"}, verbs
    pods = api_pods(cluster)
    hands = {entry["manager"] for pod in pods for entry in pod["metadata"]["managedFields"]}
    assert "koordstream" not in hands
    waiting = {pod["metadata"]["name"]: pod for pod in pods if not pod["spec"].get("nodeName")}
    assert waiting.keys() == {"ours", "too-large"}
    assert not any(pod["status"].get("conditions") for pod in waiting.values())
    recorded = cluster.api.call("GET", "/api/v1/namespaces/shop/events")["items"]
    assert not [event for event in recorded if "koordstream" in json.dumps(event)]
