"""Upstream's views of quotas over HTTP, and its metrics."""

from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from services.quota_ledger.http_api.upstream_quota_debug_api import QUOTAS, application
from services.quota_ledger.metrics import QuotaMetrics
from shared.events.cluster import ObjectDeleted, PodDeleted
from shared.kube.elastic_quota import DEFAULT, RESOURCES, ROOT, SYSTEM
from tests.support.quota_logs import Logs, pod, quota, two_teams


def teams_with_pods() -> Logs:
    logs = two_teams()
    logs.append("cluster", pod("p1", "a", "8", at="n1"), pod("p2", "a", "500m"))
    return logs


async def response_to(logs: Logs, path: str, *, leads: bool = True) -> tuple[int, Any]:
    async with TestServer(application(lambda: logs.state, lambda: leads)) as server, aiohttp.ClientSession() as client:
        answer = await client.get(server.make_url(path))
        return answer.status, await answer.json()


async def test_one_quota_is_shown_with_every_number_and_its_pods() -> None:
    status, summary = await response_to(teams_with_pods(), f"{QUOTAS}/a?includePods=true")
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


async def test_all_quotas_but_the_root_are_shown_and_pods_only_on_request() -> None:
    logs = teams_with_pods()
    _, found = await response_to(logs, QUOTAS)
    assert list(found) == ["a", "b", DEFAULT, SYSTEM]
    assert "podCache" not in found["a"]
    assert await response_to(logs, f"{QUOTAS}?tree=nowhere") == (200, {})


async def test_the_root_is_shown_by_name_with_what_is_shared() -> None:
    _, root = await response_to(teams_with_pods(), f"{QUOTAS}/{ROOT}")
    assert root["runtime"] == {"cpu": "10", "memory": "64Gi"}
    assert root["used"] == {"cpu": "8"}


async def test_a_quota_that_is_not_there_is_not_found() -> None:
    assert await response_to(teams_with_pods(), f"{QUOTAS}/c") == (404, {"message": "cannot find quota c"})


async def test_only_the_leader_answers() -> None:
    assert await response_to(teams_with_pods(), QUOTAS, leads=False) == (503, {"message": "the instance is not leader"})


def shown(metrics: QuotaMetrics) -> dict[tuple[str, ...], float]:
    """Name, resource and field -> value, as Prometheus reads the page."""
    [family] = text_string_to_metric_families(metrics.page().decode())
    assert (family.name, family.type) == ("scheduler_elastic_quota_status", "gauge")
    samples: dict[tuple[str, ...], float] = {}
    for sample in family.samples:
        assert sample.labels.keys() == {"name", "resource", "tree", "is_parent", "parent", "field"}
        samples[sample.labels["name"], sample.labels["resource"], sample.labels["field"]] = sample.value
    return samples


def test_metrics_have_upstreams_names_and_follow_what_moves() -> None:
    metrics, logs = QuotaMetrics(CollectorRegistry()), teams_with_pods()
    assert metrics.page() == b""
    metrics.update(logs.state)
    numbers = {
        field: value for (name, resource, field), value in shown(metrics).items() if (name, resource) == ("a", "cpu")
    }
    assert numbers == {
        "runtime": 8500, "request": 8500, "child-request": 8500, "used": 8000, "min": 5000, "max": 10_000, "sharedWeight": 10_000,
    }  # fmt: skip
    logs.append("cluster", PodDeleted(pod="ns/p1", pod_uid="p1"))
    metrics.update(logs.state)
    assert shown(metrics)["a", "cpu", "used"] == 0


def test_a_resource_of_any_name_can_be_shown() -> None:
    metrics, logs = QuotaMetrics(CollectorRegistry()), teams_with_pods()
    odd = quota("odd", "0", "1")
    odd.object["spec"]["max"]['a"b\\c\n'] = "3"
    logs.append("cluster", odd)
    metrics.update(logs.state)
    assert shown(metrics)["odd", 'a"b\\c\n', "max"] == 3


def test_series_of_a_quota_that_is_gone_are_dropped() -> None:
    metrics, logs = QuotaMetrics(CollectorRegistry()), teams_with_pods()
    metrics.update(logs.state)
    logs.append("cluster", PodDeleted(pod="ns/p1", pod_uid="p1"), PodDeleted(pod="ns/p2", pod_uid="p2"))
    logs.append("cluster", ObjectDeleted(resource=RESOURCES[0], name="quotas/a", uid="a"))
    metrics.update(logs.state)
    assert {name for name, *_ in shown(metrics)} >= {"b"}
    assert "a" not in {name for name, *_ in shown(metrics)}
