"""Lists and watches of a real API server: pages, bookmarks, 410, hanging or broken connections, objects over 1 MiB."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from cli.dev.kube_client import ApiRefused
from cli.dev.kubeconfig import write_kubeconfig
from cli.dev.local_control_plane import Cluster
from services.gateway.kube_api.api_errors import Busy
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.decoding import Decoder
from services.gateway.kube_api.resources import CONFIG_MAPS, PODS, RESOURCES, Resource, watched_resources
from services.gateway.settings import GatewaySettings
from services.gateway.watch import api_server_probe
from services.gateway.watch.unread_resources import Outages, unreachable
from shared.kube.resource_names import OF_OPENKRUISE
from shared.runtime.task_cancellation import cancel_and_wait
from tests.cluster.fixtures import StartCluster
from tests.integration.gateway.conftest import MakePod
from tests.integration.gateway.fault_proxy import FaultProxy
from tests.integration.gateway.watch_recorder import watching
from tests.support.pods import written_pod
from tests.support.waiting import until


@pytest.fixture
def pods(namespace: str) -> Resource:
    return PODS._replace(namespace=namespace)


async def test_a_list_is_read_by_pages_and_the_watch_continues_from_it(
    api: KubeApi, pods: Resource, make_pod: MakePod, namespace: str, proxy: FaultProxy, cluster: Cluster
) -> None:
    for number in range(20):
        make_pod(f"web-{number}")
    async with watching(api, pods) as sink:
        await until(lambda: sink.lists)
        assert len(sink.objects) == 20
        assert proxy.count("GET", "limit=7") == 3
        assert proxy.count("GET", "continue=") == 2
        make_pod("late")
        await until(lambda: f"{namespace}/late" in sink.objects)
        cluster.api.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/web-3?gracePeriodSeconds=0")
        await until(lambda: f"{namespace}/web-3" not in sink.objects)
        assert sink.observations.count(f"{namespace}/web-0") == 1
        assert len(sink.lists) == 1


async def test_a_watch_ended_by_the_server_continues_without_a_list(
    api: KubeApi, pods: Resource, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    settings = GatewaySettings(backoff_s=0.02, watch_s=1)
    async with watching(api, pods, settings) as sink:
        await until(lambda: proxy.count("GET", "watch=1") >= 3)
        make_pod("late")
        await until(lambda: f"{namespace}/late" in sink.objects)
        assert len(sink.lists) == 1
        assert sink.reasons == []
    assert "allowWatchBookmarks=true" in proxy.requests[-1][1]
    assert "timeoutSeconds=1" in proxy.requests[-1][1]


async def test_bookmarks_advance_the_version_from_which_a_watch_continues(
    api: KubeApi, pods: Resource, make_pod: MakePod, cluster: Cluster, proxy: FaultProxy
) -> None:
    """Changes happen only in other namespaces: nothing but a bookmark advances the version of the watch."""
    # The server sends a bookmark two seconds before a watch ends, if it has begun the watch by then.
    settings = GatewaySettings(backoff_s=0.02, watch_s=8)
    async with watching(api, pods, settings) as sink:
        await until(lambda: sink.lists)

        def versions() -> list[int]:
            watches = [path for _, path in proxy.requests if "watch=1" in path]
            return [int(path.split("resourceVersion=")[1].split("&")[0]) for path in watches]

        async def moved() -> bool:
            # Changes go on meanwhile: after a single one, some servers sent no bookmark for a minute.
            cluster.api.call("POST", "/api/v1/namespaces/default/pods", written_pod("bookmark"))
            cluster.api.call("DELETE", "/api/v1/namespaces/default/pods/bookmark?gracePeriodSeconds=0")
            await asyncio.sleep(0.5)
            return len(set(versions())) > 1

        # A server under load may end a watch before its bookmark; one of the next watches receives it.
        await until(moved)
        assert versions() == sorted(versions())
        assert len(sink.lists) == 1
        assert sink.observations == [], "no event moved it"


async def test_an_expired_version_leads_to_a_new_list(own_cluster: StartCluster, tmp_path: Path) -> None:
    """The API server restarts while unreachable: it no longer has the changes of before, one of them a deletion."""
    cluster = own_cluster()
    pods = "/api/v1/namespaces/default/pods"
    for name in ("leaves", "stays"):
        body = written_pod(name)
        cluster.api.call("POST", pods, body)
    async with FaultProxy(cluster.url, cluster.ca_file).running() as proxy:
        token = cluster.service_account_token("default", "watcher")
        cluster.kubectl(
            "create", "clusterrolebinding", "watcher", "--clusterrole=cluster-admin", "--serviceaccount=default:watcher"
        )
        path = write_kubeconfig(
            tmp_path / "kc", url=proxy.url, ca=cluster.ca_file.read_bytes(), user="w", credentials=token
        )
        async with KubeApi(str(path), timeout_s=5) as api, watching(api, PODS) as sink:
            await until(lambda: len(sink.objects) == 2 and proxy.count("GET", "watch=1"))
            unreachable = proxy.fail("GET", "/pods?", "refuse", times=-1)
            proxy.cut()
            cluster.api.call("DELETE", f"{pods}/leaves?gracePeriodSeconds=0")
            await asyncio.to_thread(cluster.restart_apiserver)
            unreachable.times = 0
            await until(lambda: sink.reasons)
            assert sink.reasons == ["Expired"]
            assert list(sink.objects) == ["default/stays"]
            assert sink.lists[-1] == {"default/stays"}


async def test_a_list_with_an_expired_token_begins_anew(
    api: KubeApi, pods: Resource, make_pod: MakePod, proxy: FaultProxy
) -> None:
    for number in range(10):
        make_pod(f"web-{number}")
    proxy.fail("GET", "continue=", status=410, reason="Expired")
    async with watching(api, pods) as sink:
        await until(lambda: sink.lists)
        assert len(sink.lists[0]) == 10
        assert proxy.count("GET", "continue=") == 2


async def test_a_broken_watch_continues_from_its_version(
    api: KubeApi, pods: Resource, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    async with watching(api, pods) as sink:
        await until(lambda: sink.lists and proxy.count("GET", "watch=1"))
        make_pod("one")
        await until(lambda: f"{namespace}/one" in sink.objects)
        proxy.fail("GET", "watch=1", "refuse", times=3)
        assert proxy.cut() == 1
        make_pod("two")
        await until(lambda: f"{namespace}/two" in sink.objects)
        assert sink.observations == [f"{namespace}/one", f"{namespace}/two"]
        assert len(sink.lists) == 1


async def test_an_idle_watch_is_detected_and_continues(
    api: KubeApi, pods: Resource, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    settings = GatewaySettings(backoff_s=0.02, watch_idle_timeout_s=0.5)
    proxy.fail("GET", "watch=1", "freeze", times=2)
    async with watching(api, pods, settings) as sink:
        await until(lambda: sink.lists)
        make_pod("unseen")
        began = time.monotonic()
        await until(lambda: f"{namespace}/unseen" in sink.objects)
        assert time.monotonic() - began >= 0.5
        assert len(sink.lists) == 1
        assert sink.failures == [], "the server accepted each of the watches"


@pytest.mark.parametrize("status", [400, 409, 429, 500, 503, 504])
async def test_a_list_or_watch_that_fails_is_repeated_and_its_reason_kept_meanwhile(
    status: int, api: KubeApi, pods: Resource, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    proxy.fail("GET", "limit=", status=status, times=3)
    proxy.fail("GET", "watch=1", status=status, times=3)
    async with watching(api, pods) as sink:
        await until(lambda: sink.lists and proxy.count("GET", "watch=1") > 3)
        make_pod("web")
        await until(lambda: f"{namespace}/web" in sink.objects)
        assert [reason.partition(":")[0] for reason in sink.failures] == ["list"] * 3 + ["watch"] * 3
        assert all(f"{status} a fault" in reason for reason in sink.failures)
        assert not sink.fails
        assert sink.accepts == 1, "the first watch after the failures, before it delivers"


async def test_a_list_that_hangs_or_is_cut_is_repeated(
    kubeconfig: Path, pods: Resource, make_pod: MakePod, proxy: FaultProxy
) -> None:
    for number in range(10):
        make_pod(f"web-{number}")
    proxy.fail("GET", "limit=", "hang")
    proxy.fail("GET", "limit=", "swallow")
    proxy.fail("GET", "continue=", "lose", times=2)
    proxy.fail("GET", "continue=", "freeze", after=100)
    async with KubeApi(str(kubeconfig), timeout_s=0.5) as api, watching(api, pods) as sink:
        await until(lambda: sink.lists)
        assert len(sink.lists[0]) == 10
        assert len(sink.failures) == 5


async def test_an_api_server_that_hangs_is_noticed_while_its_watches_stay_open(
    kubeconfig: Path, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For 16 s top, get and why named nothing: the gateway had no request to send."""
    monkeypatch.setattr(api_server_probe, "INTERVAL_S", 0.02)
    monkeypatch.setattr(api_server_probe, "ANSWER_S", 0.3)
    outages = Outages(time.monotonic)
    async with KubeApi(str(kubeconfig)) as api:
        probing = asyncio.create_task(api_server_probe.probe(api, outages, 0.1))
        await until(lambda: proxy.count("GET", "/api/v1/namespaces?") > 1)
        assert not outages.current()
        refused = proxy.fail("GET", "", status=403, times=-1)
        await until(lambda: refused.met)
        assert not outages.current(), "an error is an answer"
        refused.times = 0
        hangs = proxy.fail("GET", "", "hang", times=-1)
        await until(outages.current)
        [away] = unreachable(outages.current(), api.server, time.time_ns(), api.silent_s)
        assert (away.server, away.reason) == (f"the API server at {api.server}", "no answer within 0.3 s")
        hangs.times = 0
        await until(lambda: not outages.current())
        await cancel_and_wait(probing)


async def test_nodes_and_pods_that_are_not_found_are_not_deleted(
    api: KubeApi, make_pod: MakePod, namespace: str, proxy: FaultProxy
) -> None:
    """A 404 for them comes from something between: a balancer, another server at this address."""
    make_pod("web")
    missing = proxy.fail("GET", "/api/v1/pods?limit=", status=404, times=3)
    async with watching(api, PODS) as sink:
        await until(lambda: not missing.times)
        await until(lambda: f"{namespace}/web" in sink.objects)
        assert set() not in sink.lists
        assert len(sink.failures) == 3


async def test_an_object_of_more_than_a_mebibyte_is_listed_and_watched(api: KubeApi, cluster: Cluster) -> None:
    collection = "/api/v1/namespaces/koordinator-system/configmaps"
    large = {"data": {"text": "x" * (2**20 - 100)}}
    note = {"koordinator.sh/note": "y" * 200_000}

    def make(name: str) -> None:
        cluster.api.call("POST", collection, {"metadata": {"name": name, "annotations": note}, **large})

    def size(key: str) -> int:
        body = sink.objects[f"koordinator-system/{key}"].object
        assert isinstance(body, dict)
        return len(body["data"]["text"]) + len(body["metadata"]["annotations"]["koordinator.sh/note"])

    make("large-listed")
    resource = CONFIG_MAPS._replace(namespace="koordinator-system")
    try:
        async with watching(api, resource) as sink:
            await until(lambda: sink.lists)
            assert size("large-listed") > 2**20
            make("large-watched")
            await until(lambda: "koordinator-system/large-watched" in sink.objects)
            assert size("large-watched") > 2**20
    finally:
        for name in ("large-listed", "large-watched"):
            cluster.api.call("DELETE", f"{collection}/{name}")


async def test_large_config_maps_of_tenants_are_never_read(
    api: KubeApi, cluster: Cluster, namespace: str, proxy: FaultProxy
) -> None:
    """Ten mebibytes of a tenant, before the list and during the watch; the proxy sees every request of the gateway."""
    (resource,) = (one for one in watched_resources(GatewaySettings().config_namespace) if one.name == CONFIG_MAPS.name)

    def make(name: str, where: str, text: str) -> None:
        body = {"metadata": {"name": name}, "data": {"text": text}}
        cluster.api.call("POST", f"/api/v1/namespaces/{where}/configmaps", body)

    def flood(when: str) -> None:
        for number in range(5):
            make(f"flood-{when}-{number}", namespace, "x" * (2**20 - 100))

    flood("listed")
    try:
        async with watching(api, resource) as sink:
            await until(lambda: sink.lists)
            flood("watched")
            make("after-the-flood", "koordinator-system", "y")
            await until(lambda: "koordinator-system/after-the-flood" in sink.objects)
            assert [key for key in sink.observations if key.startswith(f"{namespace}/")] == []
            assert proxy.count("GET", "/api/v1/namespaces/koordinator-system/configmaps") >= 2
            assert proxy.count("GET", "/api/v1/configmaps") == 0
            assert proxy.count("GET", f"/api/v1/namespaces/{namespace}/configmaps") == 0
    finally:
        cluster.api.call("DELETE", "/api/v1/namespaces/koordinator-system/configmaps/after-the-flood")


WIDGETS = Resource("widgets.example.com", "example.com/v1", "Widget")
CRD = {
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


async def test_an_absent_resource_is_polled_until_installed_and_its_removal_deletes_its_objects(
    cluster: Cluster,
) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    async with KubeApi(str(cluster.kubeconfig())) as api, watching(api, WIDGETS) as sink:
        await until(lambda: sink.missing >= 1)
        assert sink.objects == {}
        cluster.api.call("POST", crds, CRD)
        before = len(sink.lists)
        await until(lambda: len(sink.lists) > before)
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
        await until(lambda: _made(cluster, body))
        await until(lambda: "w" in sink.objects)
        cluster.api.call("DELETE", f"{crds}/widgets.example.com")
        await until(lambda: not sink.objects)
        await until(lambda: sink.missing >= 3)


def _made(cluster: Cluster, body: dict[str, Any]) -> bool:
    try:
        cluster.api.call("POST", "/apis/example.com/v1/widgets", body)
    except ApiRefused as error:
        return error.status == 409
    return True


async def test_a_forbidden_resource_is_reported_and_stops_nothing(api: KubeApi, proxy: FaultProxy) -> None:
    async with watching(api, Resource("secrets", "v1", "Secret", namespaced=True)) as sink:
        await until(lambda: sink.missing >= 2)
        assert sink.lists == []  # an empty list would delete all


@pytest.mark.parametrize(
    "name", sorted({resource.name for resource in watched_resources("")} - set(OF_OPENKRUISE))
)  # OpenKruise itself is not installed here
async def test_every_watched_resource_can_be_listed_and_watched_by_our_account(name: str, api: KubeApi) -> None:
    resource = RESOURCES[name]
    if resource is CONFIG_MAPS:
        resource = resource._replace(namespace="koordinator-system")
    async with asyncio.timeout(240):
        while True:
            page = await api.page(resource, Decoder(name), limit=1)
            try:
                async for _ in api.watch(resource, page.metadata.resource_version, last_s=1, watch_idle_timeout_s=5):
                    pass
            except Busy:  # the definitions of this cluster are young: "storage is (re)initializing"
                await asyncio.sleep(0.1)
            else:
                return
