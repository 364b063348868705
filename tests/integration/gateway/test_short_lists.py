"""A list that lacks most pods: effects stop, nothing is deleted, and an operator may confirm it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from services.gateway.kube_api.resources import PODS
from shared.kube.short_lists import CONFIRM, SHORT_LISTS, Confirmation, GatewayLists
from tests.cluster.fixtures import MakeNodes
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.effect_harness import placed
from tests.integration.gateway.fault_proxy import Fault, FaultProxy
from tests.support.gateway_process import System, running
from tests.support.waiting import until

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


async def empty_list(proxy: FaultProxy, system: System) -> Fault:
    """Makes the gateway list the pods again, from a server that seems to have none."""
    await until(lambda: proxy.count("GET", "/api/v1/pods?watch=1"))
    empty = proxy.fail("GET", "/api/v1/pods?limit=", "empty", times=-1)
    proxy.fail("GET", "/api/v1/pods?watch=1", status=410, reason="Expired")
    proxy.cut()

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
