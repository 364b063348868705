"""Overcommit on a real node: a batch pod uses batch resources, and the agent limits it to them."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from cli.dev.node.kubelet_node import RealNode
from cli.processes.free_ports import free_port
from shared.domain.cpu_set import cpu_list
from shared.kube.node_resource_topology import CPU_BASIC_INFO, CPU_MANAGER_POLICY, CPU_TOPOLOGY, SHARED_POOLS
from shared.kube.quantity import nanos, value
from tests.node.batch_starts import (
    BATCH_CPU,
    BATCH_MEMORY,
    SHARES,
    STATIC,
    batch_body,
    is_right,
    starts_beside_kills,
)
from tests.node.first_values import first_values, starts_of
from tests.node.hooked_containers import (
    connections,
    records_of,
    shares_that_the_runtime_records,
    update_container,
    without_agent,
    without_nri,
)
from tests.node.kill_services import VICTIMS, kill_in_turn, watched
from tests.node.koordstream_on_node import Site, site
from tests.node.latency_experiment import COLOCATED, Pace, Service, measured, service_in
from tests.node.pod_bodies import get_json, pod
from tests.support.kube_system import koord
from tests.support.waiting import in_thread, until, wait_until

EXAMPLES = Path(__file__).parents[2] / "k8s" / "examples"
SPACE = "batch"
MIB = 2**20

LONG = pytest.mark.timeout(1800)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(real_node: RealNode, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    cluster = real_node.cluster
    cluster.create_namespace(SPACE, COLOCATED)
    cluster.apply(EXAMPLES / "webhooks" / "colocation-profile.yaml")
    agent = {
        "FEATURES": "BEMemoryEvict=true,CoreSched=true,OOMScoreAdj=true",
        "NRI_SOCKET": str(real_node.folder / "nri.sock"),
    }
    async with site(real_node, folder, agent) as running:
        yield running


def _cgroup(there: Site, uid: str, controller: str = "cpu") -> Path:
    found = there.node.tree.of_pod(uid, controller)
    assert found, f"pod {uid} has no cgroup"
    return found


def _static_shares(there: Site) -> int:
    """Returns the shares of the static pod's own cgroup, which only the reconciler sets for a pod that it missed."""
    for logs in (there.node.folder / "pods").glob("*_fixed-*"):
        if (cgroup := there.node.tree.of_pod(logs.name.rpartition("_")[2], "cpu")) is not None:
            return _read(cgroup, "cpu.shares")
    return 0


def _read(folder: Path, file: str) -> int:
    return int((folder / file).read_text())


async def test_a_batch_pod_runs_on_batch_resources_and_is_limited_to_them(there: Site) -> None:
    node = there.node

    async def batch_cpu() -> int:
        return value(nanos(node.status()["allocatable"].get(BATCH_CPU, "0")))

    assert await until(batch_cpu, "batch resources") >= 1000
    requests = {"cpu": "500m", "memory": "128Mi"}
    made = await there.created(
        SPACE, pod("work", "-burn=1", requests=requests, limits={"cpu": "1", "memory": "192Mi"}, labels=COLOCATED)
    )
    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {
        "requests": {BATCH_CPU: "500", BATCH_MEMORY: "128Mi"},
        "limits": {BATCH_CPU: "1k", BATCH_MEMORY: "192Mi"},
    }
    assert (made["spec"]["schedulerName"], made["metadata"]["labels"]["koordinator.sh/qosClass"]) == (
        "koord-scheduler",
        "BE",
    )

    runs = await there.running(SPACE, "work")
    assert runs["spec"]["nodeName"] == node.name
    uid = made["metadata"]["uid"]
    cpu, memory = _cgroup(there, uid), _cgroup(there, uid, "memory")
    assert cpu.parent.name == "besteffort"

    async def held() -> bool:
        limits = _read(cpu, "cpu.cfs_quota_us"), _read(memory, "memory.limit_in_bytes")
        return _read(cpu, "cpu.shares") == 512 and limits == (100_000, 192 * MIB)

    await until(held, "values of the pod's cgroup")
    container = runs["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")

    async def container_held() -> bool:
        return _read(cpu / container, "cpu.shares") == 512 and _read(cpu / container, "cpu.cfs_quota_us") == 100_000

    await until(container_held, "values of the container's cgroup")
    assert _read(memory / container, "memory.limit_in_bytes") == 192 * MIB


@pytest.mark.parametrize(
    "turns", [pytest.param(1, id="short"), pytest.param(20, id="long", marks=[pytest.mark.soak, LONG])]
)
async def test_each_batch_container_begins_with_its_values(there: Site, turns: int) -> None:
    """The programs end within milliseconds, long before the reconciler looks; each prints its own cgroup first.

    One pod of a turn comes through the scheduler; one is created for the node, so that the kubelet may start it before
    the agent knows it.
    """
    for turn in range(turns):
        bodies = [
            batch_body(f"known-{turn}", 5),
            batch_body(f"direct-{turn}", 5, nodeName=there.node.name),
        ]
        starts = await first_values(there, SPACE, bodies)
        assert [is_right(each) for each in starts] == [True] * 10, starts
    records = await records_of(there, starts, ("applied", "repaired", "notApplied"))
    assert {(each["state"], each["route"]) for each in records.values()} == {("applied", "nri")}
    assert {tuple(each["hooks"]) for each in records.values()} == {("BatchResource", "OOMScoreAdj")}


async def test_a_container_that_started_without_the_agent_is_repaired_within_a_second_of_its_connection(
    there: Site,
) -> None:
    """The runtime's own record of the container shows it: the reconciler writes to cgroups alone."""
    path, node = f"/api/v1/namespaces/{SPACE}/pods/missed", there.node
    async with without_agent(there):
        (node.folder / "static/fixed.json").write_text(json.dumps(STATIC))
        await there.created(SPACE, batch_body("missed", 3, stays=True, nodeName=node.name))
        runs = await there.running(SPACE, "missed")
        starts = await starts_of(node, runs)
        assert not any(map(is_right, starts)), starts
        before = connections(there)
    folders = [_cgroup(there, runs["metadata"]["uid"]) / start.container for start in starts]

    def repaired_s() -> float:
        """Returns the seconds from the connection until all have their shares."""
        wait_until(lambda: connections(there) > before, "connection of the agent")
        connected_s = time.monotonic()
        wait_until(lambda: all(_read(folder, "cpu.shares") == SHARES for folder in folders), "shares")
        return time.monotonic() - connected_s

    assert await asyncio.to_thread(repaired_s) < 1
    for start in starts:
        recorded = in_thread(partial(shares_that_the_runtime_records, node, start.container))
        await until(recorded, "record of the runtime", holds=lambda found: found == SHARES)
        await asyncio.to_thread(update_container, node, start.container, shares=2, quota_us=-1)
    assert [_read(folder, "cpu.shares") for folder in folders] == [SHARES] * 3, "an update keeps the values of hooks"
    for each in (await records_of(there, starts, ("repaired",))).values():
        assert each["hooks"] == ["BatchResource", "OOMScoreAdj"]
        assert each["after_ms"] > 0
    await there.call("DELETE", path)
    await until(in_thread(partial(_static_shares, there)), "shares of the static pod", holds=lambda found: found == 256)
    (node.folder / "static/fixed.json").unlink()


@pytest.mark.soak
@LONG
async def test_200_containers_start_right_or_are_repaired_while_the_agent_is_killed_each_five_seconds(
    there: Site,
) -> None:
    """A container that printed other values is recorded as repaired, and no other is.

    But for one that was repaired between the start of its program and its first action, which takes a while on a busy
    machine.
    """
    found = await starts_beside_kills(there, SPACE, "killed", turns=20, kill_interval_s=5)
    assert len(found) == 200
    for each in found:
        assert each.began_right if each.state == "applied" else not each.began_right or each.after_ms < 1_000, each
    assert any(each.state == "repaired" for each in found), "no start without the agent"


@pytest.mark.parametrize(
    ("turns", "kill_interval_s"),
    [pytest.param(1, 3, id="short"), pytest.param(20, 5, id="long", marks=[pytest.mark.soak, LONG])],
)
async def test_the_reconciler_alone_repairs_each_container_while_the_agent_is_killed(
    there: Site, turns: int, kill_interval_s: float
) -> None:
    """Without NRI each container starts, runs without its values for a while, and is recorded so."""
    async with without_nri(there):
        found = await starts_beside_kills(there, SPACE, "late", turns=turns, kill_interval_s=kill_interval_s)
    assert {(each.state, each.route) for each in found} == {("repaired", "reconciler")}
    assert len(found) == 10 * turns
    assert not all(each.began_right for each in found)


async def test_overcommitted_amounts_add_up(there: Site) -> None:
    explained = json.loads(await koord(there.system, "explain", "node", there.node.name, "-o", "json"))
    found = {each["resource"]: each for each in explained["resources"]}
    assert {BATCH_CPU, BATCH_MEMORY} <= found.keys()
    assert all(each["adds_up"] for each in found.values())
    first = {name: each["steps"][0] for name, each in found.items()}
    capacity = there.node.status()["capacity"]
    assert (first[BATCH_CPU]["name"], first[BATCH_CPU]["amount"]) == ("capacity", nanos(capacity["cpu"]) // 10**6)
    assert first[BATCH_MEMORY]["amount"] == value(nanos(capacity["memory"]))


async def test_best_effort_is_idle_under_the_published_core_scheduling_policy(there: Site) -> None:
    """Uses cpuPolicy coreSched with schedIdle; the kubelet starts pods in an idle cgroup as in any other."""
    qos = {"policies": {"cpuPolicy": "coreSched"}, "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}}}
    folder = there.node.tree.folder("cpu", "kubepods/besteffort")

    async def idle() -> bool:
        return _read(folder, "cpu.idle") == 1

    await there.configure(resource_qos_config={"clusterStrategy": qos})
    await until(idle, "idle best effort")
    await there.created(SPACE, pod("late", requests={"cpu": "100m", "memory": "32Mi"}, labels=COLOCATED))
    await there.running(SPACE, "late")


def _used_percent() -> int:
    """Returns the usage of this machine's memory, as the agent counts it."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = {name: int(text.split()[0]) for name, _, text in (line.partition(":") for line in lines)}
    return (found["MemTotal"] - found["MemAvailable"]) * 100 // found["MemTotal"]


async def test_high_memory_usage_evicts_the_largest_batch_pod_with_a_reason(there: Site) -> None:
    ports = {name: free_port() for name in ("latency", "small", "large")}
    batch = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "8Gi"}, "labels": COLOCATED}
    plain = {
        "requests": {"cpu": "100m", "memory": "512Mi"},
        "labels": {"koordinator.sh/qosClass": "LS"},
        "schedulerName": "koord-scheduler",
    }
    for name, port in ports.items():
        await there.created(SPACE, pod(name, f"-listen=127.0.0.1:{port}", **(plain if name == "latency" else batch)))
    for name, mib in {"latency": 400, "small": 50, "large": 100}.items():
        await there.running(SPACE, name, ports[name])
        await asyncio.to_thread(get_json, ports[name], f"/hold?mib={mib}", post=True)

    # Half a percent to three halves above the present usage: the pod grows until the node is there.
    threshold = _used_percent() + 2
    await there.configure(
        resource_threshold_config={
            "clusterStrategy": {
                "enable": True,
                "memoryEvictThresholdPercent": threshold,
                "memoryEvictLowerPercent": threshold - 1,
            }
        }
    )
    path = f"/api/v1/namespaces/{SPACE}/pods"
    mib = 100

    async def gone() -> bool:
        nonlocal mib
        mib = min(mib + 100, 4000)
        with suppress(OSError):
            await asyncio.to_thread(get_json, ports["large"], f"/hold?mib={mib}", post=True)
        return await there.get(f"{path}/large") is None

    await until(gone, "eviction of the large pod")
    await there.configure(resource_threshold_config={"clusterStrategy": {"enable": False}})
    explained = await koord(there.system, "why", "pod", f"{SPACE}/large")
    assert (
        f"its eviction is requested: node {there.node.name}: trigger by koordlet feature BEMemoryEvict: to release memory "
        in explained
    )
    for name in ("latency", "small"):
        assert (await there.call("GET", f"{path}/{name}"))["status"]["phase"] == "Running"


async def test_the_topology_of_the_node_is_reported_and_its_cpu_normalized_and_amplified(there: Site) -> None:
    name = there.node.name
    path = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{name}"

    async def zone() -> dict[str, str] | None:
        found = await there.get(path)
        (only,) = found["zones"] if found else [{"resources": []}]
        amounts = {each["name"]: each["allocatable"] for each in only["resources"]}
        return amounts if BATCH_CPU in amounts else None

    amounts = await until(zone, "batch resources of the zone")
    assert value(nanos(amounts["cpu"])) == os.cpu_count()
    assert nanos(amounts["memory"]) > 0
    topology = await there.call("GET", path)
    (owner,) = topology["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Node", name)
    assert topology["topologyPolicies"] == ["None"]
    annotations = {note: json.loads(text) for note, text in topology["metadata"]["annotations"].items()}
    assert {each["id"] for each in annotations[CPU_TOPOLOGY]["detail"]} == set(range(os.cpu_count() or 0))
    assert annotations[CPU_MANAGER_POLICY] == {"policy": "none"}
    assert [pool["cpuset"] for pool in annotations[SHARED_POOLS]] == [cpu_list(range(os.cpu_count() or 0))]

    async def annotated(note: str) -> str | None:
        node = await there.call("GET", f"/api/v1/nodes/{name}")
        found: str | None = node["metadata"].get("annotations", {}).get(f"node.koordinator.sh/{note}")
        return found

    model = dict.fromkeys(
        ("baseRatio", "hyperThreadEnabledRatio", "turboEnabledRatio", "hyperThreadTurboEnabledRatio"), 1.2
    )
    ratios = {"enable": True, "ratioModel": {annotations[CPU_BASIC_INFO]["cpuModel"]: model}}

    async def normalized() -> bool:
        return await annotated("cpu-normalization-ratio") == "1.20"

    raw = nanos(there.node.status()["allocatable"]["cpu"])
    await there.configure(cpu_normalization_config=ratios)
    await until(normalized, "normalization ratio")
    await there.configure(resource_amplification_config={"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}})

    async def amplified() -> bool:
        return nanos(there.node.status()["allocatable"]["cpu"]) == raw * 9 // 5  # 1.5, of a cpu that is worth 1.2

    await until(amplified, "amplified cpu")
    assert nanos(json.loads(await annotated("raw-allocatable") or "{}")["cpu"]) == raw
    await there.configure(resource_amplification_config={"enable": False}, cpu_normalization_config={"enable": False})

    async def as_before() -> bool:
        return nanos(there.node.status()["allocatable"]["cpu"]) == raw

    await until(as_before, "cpu as the kubelet reports it")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(there: Site) -> Service:
    return await service_in(there, SPACE)


async def test_best_effort_is_suppressed_by_quota_beside_a_service_and_released_again(service: Service) -> None:
    """A short form of test_latency.py: checks the effect on quotas.

    The effect on latency shows on an idle machine only.
    """
    found = await measured(service, Pace(2, every_ms=10, rounds=10, settles_s=1))
    assert all(each["count"] == 200 for each in found.values())


@pytest.mark.timeout(1400)
@pytest.mark.parametrize(
    "victims",
    [pytest.param(("node-agent", "gateway"), id="short"), pytest.param(VICTIMS, id="long", marks=pytest.mark.soak)],
)
async def test_pods_run_on_and_stay_suppressed_while_services_are_killed(
    service: Service, victims: Sequence[str]
) -> None:
    await service.hold(on=True)
    await service.burn(2)
    async with watched(service):
        await kill_in_turn(service, victims)
    await service.hold(on=False)
    await service.burn(0)


async def test_an_agent_that_ends_leaves_cgroups_as_the_kubelet_made_them(there: Site) -> None:
    """The agent was killed once, above: its original values survive that."""
    work = await there.call("GET", f"/api/v1/namespaces/{SPACE}/pods/work")
    cpu, memory = (_cgroup(there, work["metadata"]["uid"], controller) for controller in ("cpu", "memory"))

    async def held() -> bool:
        return _read(cpu, "cpu.shares") == 512

    await until(held, "shares of the pod")
    agent = there.system.supervisor.units["node-agent"].process

    def ended() -> dict[str, int]:
        agent.stop()  # the supervisor starts it again, which takes longer than one observation
        files = {"cpu.shares": cpu, "cpu.cfs_quota_us": cpu, "cpu.idle": cpu.parent, "memory.limit_in_bytes": memory}
        return {file: _read(folder, file) for file, folder in files.items()}

    found = await asyncio.to_thread(ended)
    assert found.pop("memory.limit_in_bytes") > 2**60
    assert found == {"cpu.shares": 2, "cpu.cfs_quota_us": -1, "cpu.idle": 0}
    await until(held, "shares of the pod after the agent has come back")
