"""Invariants of the log and the API after faults of the services."""

from collections import Counter, defaultdict

import msgspec

from cli.dev.local_control_plane import Cluster
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.service import SERVICE
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events.cluster import BindFailed, BindRejected, BindSuppressed, MissingPermission, PodBound
from shared.events.scheduling import PodPlaced
from shared.log.admin.verify import verify
from shared.log.database import Database
from shared.log.follower import Follower
from shared.log.reader import LogReader
from tests.support.waiting import until

REFUSALS = {kind.type_name() for kind in (BindRejected, BindFailed, BindSuppressed, MissingPermission)}


async def check(cluster: Cluster, namespace: str, postgres: str, expected: set[str]) -> None:
    """Checks that no pod is lost, none is bound or placed twice, and that the scheduler's sums are those of the API."""
    database = Database(postgres)
    try:
        reader = LogReader(database)
        for context in ("cluster", "scheduling"):
            verified = await verify(reader, context)
            assert verified.ok, verified
        await _each_pod_is_bound_once(cluster, namespace, reader, expected)
        await _sums_of_the_scheduler_are_those_of_the_api(cluster, database, reader)
    finally:
        await database.close()


async def _each_pod_is_bound_once(cluster: Cluster, namespace: str, reader: LogReader, expected: set[str]) -> None:
    pods = {
        pod["metadata"]["name"]: pod for pod in cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    }
    assert set(pods) == expected
    uids = {pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in pods.values()}
    assert all(uids.values()), "a pod has no node"
    bound = await until(
        lambda: _bindings(reader, uids), "an outcome of each binding", holds=lambda found: set(found) == set(uids)
    )
    assert set(bound.values()) == {1}, "a pod was bound twice"
    refused: set[int] = set()
    async for row in reader.rows(context="cluster"):
        if row.type in REFUSALS and row.cause:
            refused.add(int(row.cause.rpartition("/")[2]))
    placed: defaultdict[str, list[int]] = defaultdict(list)
    async for row in reader.rows(context="scheduling", kind="PodPlaced.v1"):
        event = msgspec.json.decode(row.data, type=PodPlaced)
        if event.pod_uid in uids:
            placed[event.pod_uid].append(row.seq)
    assert set(placed) == set(uids), "a bound pod was never placed"
    for uid, seqs in placed.items():
        standing = [seq for seq in seqs if seq not in refused]
        assert len(standing) == 1, f"{uid} was placed {len(standing)} times without a rejection between"


async def _bindings(reader: LogReader, nodes: dict[str, str]) -> Counter[str]:
    """Returns the number of recorded bindings of each pod; checks that each names the node in the API."""
    bound: Counter[str] = Counter()
    async for row in reader.rows(context="cluster", kind="PodBound.v1"):
        event = msgspec.json.decode(row.data, type=PodBound)
        if event.pod_uid in nodes:
            bound[event.pod_uid] += 1
            assert event.node == nodes[event.pod_uid], f"{event.pod} was recorded on {event.node}"
    return bound


async def _sums_of_the_scheduler_are_those_of_the_api(cluster: Cluster, database: Database, reader: LogReader) -> None:
    follows = SERVICE.member(0, 1).follows
    follower = Follower("chaos", reader, None, follows, SchedulerState)
    for context in follows:
        await follower.read_to_head(context)
    view = follower.state
    assert isinstance(view, SchedulerState)
    cache = CycleInputs(view, config_of(view).profiles)
    cache.settle()
    table = cache.table
    counted = {name: int(table.pods[row]) for name, row in table.rows.items() if table.alive[row]}
    held: Counter[str] = Counter()
    for pod in cluster.api.call("GET", "/api/v1/pods")["items"]:
        if pod["spec"].get("nodeName") and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            held[pod["spec"]["nodeName"]] += 1
    assert {name: count for name, count in counted.items() if count} == dict(held)
