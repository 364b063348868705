"""Upstream's views of quotas over HTTP, and its metrics."""

from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry, generate_latest

from services.quota_ledger.metrics import QuotaMetrics
from services.quota_ledger.serving.server import QUOTAS, application
from shared.events.cluster import ObjectDeleted, PodDeleted
from shared.kube.elastic_quota import DEFAULT, RESOURCES, ROOT, SYSTEM
from tests.unit.quota_ledger.test_state import Logs, pod, two_teams


def teams_with_pods() -> Logs:
    logs = two_teams()
    logs.tell("cluster", pod("p1", "a", "8", at="n1"), pod("p2", "a", "500m"))
    return logs


async def asked(logs: Logs, path: str, *, leads: bool = True) -> tuple[int, Any]:
    async with TestServer(application(lambda: logs.state, lambda: leads)) as server, aiohttp.ClientSession() as client:
        answer = await client.get(server.make_url(path))
        return answer.status, await answer.json()


async def test_one_quota_is_shown_with_every_number_and_its_pods() -> None:
    status, summary = await asked(teams_with_pods(), f"{QUOTAS}/a?includePods=true")
    assert status == 200
    version = summary.pop("runtimeVersion")
    assert version > 0
    assert summary == {
        "name": "a",
        "parentName": ROOT,
        "isParent": False,
        "allowLentResource": True,
        "tree": "",
        "max": {"cpu": "10"},
        "min": {"cpu": "5"},
        "autoScaleMin": {"cpu": "5"},
        "used": {"cpu": "8"},
        "nonPreemptibleUsed": {},
        "request": {"cpu": "8500m"},
        "nonPreemptibleRequest": {},
        "sharedWeight": {"cpu": "10"},
        "runtime": {"cpu": "8500m"},
        "childRequest": {"cpu": "8500m"},
        "allocated": {},
        "guaranteed": {},
        "selfUsed": {"cpu": "8"},
        "selfNonPreemptibleUsed": {},
        "selfRequest": {"cpu": "8500m"},
        "selfNonPreemptibleRequest": {},
        "podCache": {
            "ns/p1": {"isAssigned": True, "resource": {"cpu": "8"}},
            "ns/p2": {"isAssigned": False, "resource": {"cpu": "500m"}},
        },
    }


async def test_all_quotas_are_shown_but_the_root_and_pods_only_when_asked_for() -> None:
    logs = teams_with_pods()
    _, found = await asked(logs, QUOTAS)
    assert list(found) == ["a", "b", DEFAULT, SYSTEM]
    assert "podCache" not in found["a"]
    assert await asked(logs, f"{QUOTAS}?tree=nowhere") == (200, {})


async def test_the_root_is_shown_by_name_with_what_is_shared() -> None:
    _, root = await asked(teams_with_pods(), f"{QUOTAS}/{ROOT}")
    assert root["runtime"] == {"cpu": "10", "memory": "64Gi"}
    assert root["used"] == {"cpu": "8"}


async def test_a_quota_that_is_not_there_is_not_found() -> None:
    assert await asked(teams_with_pods(), f"{QUOTAS}/c") == (404, {"message": "cannot find quota c"})


async def test_only_the_leader_answers() -> None:
    assert await asked(teams_with_pods(), QUOTAS, leads=False) == (503, {"message": "the instance is not leader"})


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if line.startswith("scheduler_elastic_quota_status{")]


def test_metrics_have_upstreams_names_and_follow_what_moves() -> None:
    registry = CollectorRegistry()
    metrics, logs = QuotaMetrics(registry), teams_with_pods()
    metrics.look(logs.state)
    labels = f'name="a",parent="{ROOT}",resource="cpu",tree=""'
    line = f'scheduler_elastic_quota_status{{field="%s",is_parent="false",{labels}}} %s'
    assert {line % ("used", "8000.0"), line % ("runtime", "8500.0"), line % ("sharedWeight", "10000.0")} < set(
        shown(registry)
    )
    logs.tell("cluster", PodDeleted(pod="ns/p1", pod_uid="p1"))
    metrics.look(logs.state)
    assert line % ("used", "0.0") in shown(registry)


def test_series_of_a_quota_that_is_gone_are_dropped() -> None:
    registry = CollectorRegistry()
    metrics, logs = QuotaMetrics(registry), teams_with_pods()
    metrics.look(logs.state)
    logs.tell("cluster", PodDeleted(pod="ns/p1", pod_uid="p1"), PodDeleted(pod="ns/p2", pod_uid="p2"))
    logs.tell("cluster", ObjectDeleted(resource=RESOURCES[0], name="quotas/a", uid="a"))
    metrics.look(logs.state)
    assert not [line for line in shown(registry) if 'name="a"' in line]
    assert [line for line in shown(registry) if 'name="b"' in line]
