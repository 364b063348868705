"""Lists that lack most pods, nodes or quotas: effects stop, nothing is deleted, and an operator may confirm them."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from cli.dev.local_control_plane import Cluster
from cli.doctor.all_checks import examine
from cli.main import koord
from cli.supervisor.endpoints import Endpoints
from services.gateway.kube_api.resources import PODS
from shared.kube.resource_names import QUOTAS
from shared.kube.short_lists import CONFIRM, SHORT_LISTS, Confirmation, GatewayLists
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import placed
from tests.integration.gateway.fault_proxy import Fault, FaultProxy
from tests.support import kube_system
from tests.support.gateway_process import System, running
from tests.support.pods import written_pod
from tests.support.waiting import in_thread, until

PODS_MADE = 6
SETTINGS = {"KOORD_GATEWAY_SHORT_LIST_INTERVAL_S": "0.2", "KOORD_GATEWAY_RECHECK_S": "2"}


async def keys(system: System, namespace: str, kind: str) -> list[str]:
    return [row.key for row in await system.rows(kind) if row.key.startswith(f"{namespace}/")]


async def observed(system: System, namespace: str, count: int) -> None:
    async def found() -> bool:
        return len(await keys(system, namespace, "PodObserved")) >= count

    await until(found)


async def lists(system: System) -> GatewayLists:
    return msgspec.json.decode(await system.request(SHORT_LISTS), type=GatewayLists)


async def list_empty(proxy: FaultProxy, path: str = "/api/v1/pods", times: int = -1) -> Fault:
    """Makes the gateway list a resource again, from a server that seems to have no such object."""
    await until(lambda: proxy.count("GET", f"{path}?watch=1"))
    empty = proxy.fail("GET", f"{path}?limit=", "empty", times=times)
    proxy.fail("GET", f"{path}?watch=1", status=410, reason="Expired")
    proxy.cut()
    return empty


async def empty_list(proxy: FaultProxy, system: System) -> Fault:
    """Makes the gateway hold the list of pods."""
    empty = await list_empty(proxy)

    async def repeated() -> bool:
        return any(short.repeated for short in (await lists(system)).short)

    await until(repeated)
    return empty


@pytest.fixture
def made(make_pod: MakePod, kube_nodes: MakeNodes) -> list[dict[str, object]]:
    kube_nodes("gw-1")
    return [make_pod(f"web-{number}") for number in range(PODS_MADE)]


async def test_an_empty_list_stops_effects_and_deletes_nothing_until_a_complete_one_arrives(
    kubeconfig: Path, database: str, tmp_path: Path, made: list[dict[str, object]], namespace: str, proxy: FaultProxy
) -> None:
    async with running(kubeconfig, database, tmp_path, SETTINGS) as system:
        await observed(system, namespace, PODS_MADE)
        empty = await empty_list(proxy, system)
        await system.decide(placed(made[0], "gw-1"))
        before = empty.met
        await until(lambda: empty.met > before + 3)
        assert await keys(system, namespace, "PodDeleted") == []
        assert proxy.count("POST", "/binding") == 0
        assert [row.key for row in await system.rows("ShortListFound")] == [PODS.name]
        empty.times = 0
        await system.until(lambda rows: any(row.type.endswith("PodBound.v1") for row in rows))
        assert (await lists(system)).short == ()
        assert await keys(system, namespace, "PodDeleted") == []


async def test_a_confirmed_list_deletes_and_what_exists_after_all_is_recorded_again_without_a_restart(
    kubeconfig: Path, database: str, tmp_path: Path, made: list[dict[str, object]], namespace: str, proxy: FaultProxy
) -> None:
    async with running(kubeconfig, database, tmp_path, SETTINGS) as system:
        await observed(system, namespace, PODS_MADE)
        empty = await empty_list(proxy, system)
        assert msgspec.json.decode(await system.request(CONFIRM, b"no JSON"), type=GatewayLists).short == ()
        (shown,) = (await lists(system)).short
        assert (shown.resource, shown.missing) == (PODS.name, PODS_MADE)
        seen = msgspec.json.encode(Confirmation({shown.resource: shown.lists}))
        confirmed = msgspec.json.decode(await system.request(CONFIRM, seen), type=GatewayLists)
        assert confirmed.short == (shown,)

        async def deleted() -> bool:
            return len(await keys(system, namespace, "PodDeleted")) == PODS_MADE

        await until(deleted)
        assert len(await system.rows("ShortListConfirmed")) == 1
        empty.times = 0
        await observed(system, namespace, 2 * PODS_MADE)
        await system.decide(placed(made[0], "gw-1"))
        await system.until(lambda rows: any(row.type.endswith("PodBound.v1") for row in rows))
        await asyncio.to_thread(system.gateway.stop)
        assert [row.type for row in await system.rows()].count("koord.log.WriterStarted.v1") == 1


async def test_one_empty_list_of_a_few_pods_deletes_none(
    kubeconfig: Path, database: str, tmp_path: Path, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    """Fault 13, with fewer pods than an operator is needed for."""
    for number in range(3):
        make_pod(f"web-{number}")
    async with running(kubeconfig, database, tmp_path, SETTINGS) as system:
        await observed(system, namespace, 3)
        await list_empty(proxy, times=1)
        await system.until(lambda rows: any(row.type.endswith("WatchResumed.v1") for row in rows))
        assert await keys(system, namespace, "PodDeleted") == []
        assert await system.rows("ShortListFound") == []


def commanded(system: kube_system.System, *arguments: str) -> tuple[int, str, str]:
    """Runs a command as an operator does; returns its exit code and what it prints."""
    env = {"KOORD_POSTGRES": system.endpoints.postgres, "KOORD_NATS": system.endpoints.nats}
    done = CliRunner().invoke(koord, arguments, env=env)
    return done.exit_code, done.stdout, done.stderr


async def confirm(system: kube_system.System, resource: str, count: int) -> None:
    """Lets an operator confirm a list that lacks `count` objects, and reads what they see before it."""
    lacks = f"the list of {resource} lacks {count} of "

    async def shown() -> str:
        return (await asyncio.to_thread(commanded, system, "cluster", "status"))[1]

    text = await until(shown, holds=lambda text: lacks in text and "`koord cluster confirm`" in text)
    assert "effects are stopped" in text
    endpoints = Endpoints(system.endpoints.postgres, system.endpoints.nats)
    found = [each for each in await examine(endpoints, Path()) if each.area == "cluster" and each.severity == "error"]
    assert [lacks in each.what and "`koord cluster confirm`" in each.do for each in found] == [True]
    code, _, refused = await asyncio.to_thread(commanded, system, "cluster", "confirm")  # without an answer
    assert (code, "nothing was confirmed: the missing objects are not recorded as deleted" in refused) == (1, True)
    code, text, _ = await asyncio.to_thread(commanded, system, "cluster", "confirm", "--yes")
    assert (code, text.startswith(f"confirmed: {count} of "), f" {resource} are gone; effects go on" in text) == (
        0,
        True,
        True,
    )


async def test_nodes_whose_deletion_was_confirmed_by_mistake_are_repaired_with_their_pods_without_a_restart(
    cluster: Cluster, kubeconfig: Path, tmp_path: Path, kube_nodes: MakeNodes, namespace: str, proxy: FaultProxy
) -> None:
    kube_nodes(*(f"gone-{number}" for number in range(5)), capacity={"cpu": "4", "memory": "8Gi"})
    path = f"/api/v1/namespaces/{namespace}/pods"

    def create(name: str, cpu: str) -> None:
        node = {"kubernetes.io/hostname": "gone-0"}
        body = written_pod(name, requests={"cpu": cpu}, schedulerName="koord-scheduler", nodeSelector=node)
        cluster.api.call("POST", path, body)

    async def bound(name: str) -> None:
        await until(in_thread(lambda: cluster.api.call("GET", f"{path}/{name}")["spec"].get("nodeName")), name)

    async with kube_system.running(
        cluster, tmp_path, {"gateway": {**SETTINGS, "KOORD_GATEWAY_KUBECONFIG": str(kubeconfig)}}
    ) as system:

        async def nodes(kind: str) -> int:
            rows = [row async for row in system.log.rows(context="cluster", kind=kind)]
            return sum(row.key.startswith("gone-") for row in rows)

        await asyncio.to_thread(create, "before", "3")
        await bound("before")
        empty = await list_empty(proxy, "/api/v1/nodes")
        known = len({row.key async for row in system.log.rows(context="cluster", kind="NodeObserved")})
        await confirm(system, "nodes", known)
        await until(lambda: nodes("NodeDeleted"), holds=lambda found: found == 5)
        for name, cpu in (("too-large", "2"), ("fits", "1")):
            await asyncio.to_thread(create, name, cpu)
        before = await nodes("NodeObserved")
        empty.times = 0
        await until(lambda: nodes("NodeObserved"), holds=lambda found: found >= before + 5)
        await bound("fits")
        pods = {pod["metadata"]["name"]: pod["spec"] for pod in cluster.api.call("GET", path)["items"]}
        assert "nodeName" not in pods["too-large"], "the pods on the node count again"
        assert "lacks" not in (await asyncio.to_thread(commanded, system, "cluster", "status"))[1]
        await asyncio.to_thread(cluster.api.call, "DELETE", f"{path}/before", {"gracePeriodSeconds": 0})
        await bound("too-large")
        assert [unit.restarts for unit in system.supervisor.units.values()] == [0, 0]


async def test_an_empty_list_of_quotas_deletes_none_until_an_operator_confirms_it(
    cluster: Cluster, kubeconfig: Path, tmp_path: Path, namespace: str, proxy: FaultProxy
) -> None:
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas"
    for number in range(5):
        spec = {"min": {"cpu": "1"}, "max": {"cpu": "2"}}
        body = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "spec": spec}
        cluster.api.call("POST", path, {**body, "metadata": {"name": f"team-{number}"}})
    env = {"gateway": {**SETTINGS, "KOORD_GATEWAY_KUBECONFIG": str(kubeconfig)}}
    async with kube_system.running(cluster, tmp_path, env, more=["quota-ledger"]) as system:

        def names() -> set[str]:
            code, text, _ = commanded(system, "get", "quotas", "--output", "json")
            assert code == 0
            return {f"team-{number}" for number in range(5) if f'"team-{number}"' in text}

        await until(in_thread(names), holds=lambda found: len(found) == 5)
        empty = await list_empty(proxy, "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas")
        await until(lambda: empty.met > 3)
        assert len(await asyncio.to_thread(names)) == 5
        await confirm(
            system, QUOTAS, len(cluster.api.call("GET", path.replace(f"namespaces/{namespace}/", ""))["items"])
        )
        await until(in_thread(names), holds=lambda found: not found)
        empty.times = 0
        await until(in_thread(names), holds=lambda found: len(found) == 5)


async def commanded_of(system: System, database: str, *arguments: str) -> Result:
    """Runs a command as an operator does."""
    assert system.gateway.env
    env = {"KOORD_POSTGRES": database, "KOORD_NATS": system.gateway.env["KOORD_NATS"]}
    return await asyncio.to_thread(CliRunner().invoke, koord, arguments, env=env)


async def status_of(system: System, database: str) -> str:
    """Returns what `koord cluster status` prints."""
    return (await commanded_of(system, database, "cluster", "status")).output


async def test_an_api_server_that_hangs_is_named_with_the_time_since_when(
    kubeconfig: Path, database: str, tmp_path: Path, proxy: FaultProxy
) -> None:
    """Its watches stay open, so that only a request shows it; after a restart nothing at all is answered."""
    async with running(kubeconfig, database, tmp_path) as system:
        await system.until(lambda rows: any(row.type.endswith("InitialListCompleted.v1") for row in rows))
        assert await status_of(system, database) == "all lists are believed, and all resources are read\n"
        fault = proxy.fail("GET", "", "hang", times=-1)
        shown = await status_of(system, database)
        assert f"the gateway leads, but cannot use the API server at {proxy.url} for " in shown
        assert ", since 20" in shown
        assert "no answer" in shown
        assert "all lists are believed" not in shown
        await asyncio.to_thread(system.gateway.kill)
        before = await system.counts()
        await asyncio.to_thread(system.gateway.start)
        await system.until(
            lambda rows: sum(row.type.endswith("WriterStarted.v1") for row in rows) > before["WriterStarted"]
        )

        async def shown_after_the_start() -> str:
            return await status_of(system, database)

        shown = await until(shown_after_the_start, holds=lambda text: "no gateway responded" not in text)
        assert f"the gateway leads, but cannot use the API server at {proxy.url} for " in shown
        held = await commanded_of(system, database, "evictions", "hold", "--reason", "an outage")
        assert held.exit_code == 0, held.output
        assert await system.rows("EvictionsHeld")
        fault.times = 0
