"""The HTTPS server: certificates change under open connections, refusals are re-evaluated, failures are answered."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from cli.processes.free_ports import free_port
from services.gateway.webhooks.admission_handlers import AdmissionHandlers
from services.gateway.webhooks.admission_review import Request
from services.gateway.webhooks.admission_state import NAMESPACES, AdmissionState
from services.gateway.webhooks.certificate_bundle import CertificateBundle, Lifetimes, next_bundle
from services.gateway.webhooks.server import REFUSAL_RECHECK_S, WebhookMetrics, WebhookServer
from services.gateway.webhooks.webhook_definitions import WEBHOOKS, Webhook
from tests.support.pods import written_pod
from tests.unit.gateway.webhooks.admission_cluster import cluster, handlers_of, observed, quota

LIFETIMES = Lifetimes(timedelta(days=10), timedelta(days=1), timedelta(minutes=1))


def bundle() -> CertificateBundle:
    made = next_bundle(None, ("127.0.0.1",), LIFETIMES, datetime.now(UTC))
    assert made is not None
    return made


def _fails(_: AdmissionHandlers, __: Request) -> None:
    raise ZeroDivisionError


class Served:
    """Starts a server over a State."""

    def __init__(self) -> None:
        self.port = free_port()
        self.state: AdmissionState = cluster()
        self.registry = CollectorRegistry()
        broken = Webhook("broken", "/broken", "", ("",), "v1", "pods", "Namespaced", ("CREATE",), _fails)
        self.server = WebhookServer(
            f"127.0.0.1:{self.port}",
            (*WEBHOOKS, broken),
            lambda: handlers_of(self.state),
            lambda: self.state.changes,
            WebhookMetrics(self.registry),
        )
        self.authorities = b""

    def use_certificate(self, shown: CertificateBundle) -> None:
        self.server.use_certificate(shown)
        self.authorities = shown.authorities

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        tls = ssl.create_default_context(cadata=self.authorities.decode())
        url = f"https://127.0.0.1:{self.port}{path}"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls, force_close=True)) as session,
            session.post(url, json=body) as answer,
        ):
            whole = await (answer.json() if answer.content_type == "application/json" else answer.text())
            return answer.status, whole

    async def send(self, path: str, namespace: str = "web", operation: str = "CREATE", **request: Any) -> Any:
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u", "operation": operation, "namespace": namespace, **request},
        }
        status, answer = await self.post(path, body)
        assert status == 200
        return answer["response"]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    served.use_certificate(bundle())
    await served.server.start()
    yield served
    await served.server.stop()


def pod() -> dict[str, Any]:
    return written_pod("p", labels={"app": "batch"})


QUOTA_PATH = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"


async def test_a_new_certificate_is_used_without_a_restart(served: Served) -> None:
    assert (await served.send("/mutate-pod", object=pod()))["allowed"]
    served.use_certificate(bundle())
    assert (await served.send("/mutate-pod", object=pod()))["patchType"] == "JSONPatch"


async def test_a_refusal_waits_for_an_object_created_just_before(served: Served) -> None:
    child = quota("team", "org").object
    sending = asyncio.create_task(served.send(QUOTA_PATH, object=child))
    await asyncio.sleep(0.2)
    assert not sending.done()
    served.state.apply(quota("org", is_parent=True, least="9"))
    assert (await sending)["allowed"]


async def test_a_refusal_meets_the_deadline_and_one_about_the_object_alone_is_immediate(served: Served) -> None:
    began = time.monotonic()
    waiting = asyncio.create_task(served.send(QUOTA_PATH, object=quota("team", "org").object))
    await asyncio.sleep(0)
    response = await served.send(QUOTA_PATH, object=quota("greedy", least="11").object)
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert not waiting.done(), "its parent may be on its way"
    response = await waiting
    assert time.monotonic() - began >= REFUSAL_RECHECK_S
    assert response["status"]["message"] == "quota team: its parent org does not exist; create that first"


async def test_a_request_waits_for_its_new_namespace(served: Served) -> None:
    sending = asyncio.create_task(served.send("/mutate-pod", "new", object=pod()))
    await asyncio.sleep(0.2)
    assert not sending.done()
    served.state.apply(observed(NAMESPACES, "new"))
    assert (await sending)["allowed"]


async def test_pods_of_the_own_namespace_are_not_changed(served: Served) -> None:
    assert "patch" not in await served.send("/mutate-pod", "koordinator-system", object=pod())


async def test_every_failure_is_answered_and_counted(served: Served) -> None:
    assert await served.post("/mutate-pod", {"kind": "AdmissionReview"}) == (
        400,
        "the body is no AdmissionReview: Object missing required field `apiVersion`\n",
    )
    assert (await served.post("/nowhere", {}))[0] == 404
    body = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "operation": "CREATE"}}
    assert (await served.post("/broken", body))[0] == 500
    counted = served.registry.get_sample_value(
        "koord_gateway_admissions_total", {"webhook": "broken", "answer": "error"}
    )
    assert counted == 1
