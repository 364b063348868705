"""HTTPS server of the admission webhooks. Every replica runs one, leader or not, once the initial lists are folded.

A fault here must not stop the creation of pods: it becomes an HTTP error, for which the failure policy of the webhook
decides.
"""

import asyncio
import logging
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from services.gateway.webhooks import admission_review
from services.gateway.webhooks.admission_handlers import AdmissionHandlers
from services.gateway.webhooks.admission_review import BadReview, Request
from services.gateway.webhooks.certificate_bundle import CertificateBundle
from services.gateway.webhooks.webhook_definitions import Webhook
from shared.admission.rejection import AdmissionRejected
from shared.errors import KoordError

log = logging.getLogger(__name__)

EvaluateQuota = Callable[[AdmissionHandlers, Request], Awaitable[None]]
"""Admits a pod if its quota has capacity; raises Refused otherwise."""

ANSWER_TIMEOUT_S = 1.8
"""Less than the API server's own time-out (`timeoutSeconds`), so that it receives an answer."""

REFUSAL_RECHECK_S = 1.0
"""Time for which a refusal that depends on other objects is re-evaluated: an object created before is observed by then."""

POLL_INTERVAL_S = 0.02
MAX_BODY_BYTES = 8 << 20

DEPENDS_ON_OTHERS = frozenset({
    "priorityClass", "quotaMeta", "exists", "namespaceBound", "unknown", "hasChildren", "hasPods", "treeID",
    "parentMissing", "parentNotParent", "keys", "minSum", "guarantee", "ExistNodeConfict",
    "quotaOwner", "oomScore",
})  # fmt: skip
"""Codes of refusals that depend on objects other than the request's own."""


class WebhookMetrics:
    """Prometheus metrics of the webhooks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answers = Counter(
            "koord_gateway_admissions", "Admission requests answered", ("webhook", "answer"), registry=registry
        )
        self.seconds = Histogram(
            "koord_gateway_admission_seconds",
            "Time from an admission request to its answer",
            ("webhook",),
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2),
            registry=registry,
        )


class WebhookServer:
    """Serves the webhooks on `host:port`, with the certificate of the last `use_certificate`."""

    def __init__(
        self,
        listen: str,
        webhooks: Iterable[Webhook],
        handlers: Callable[[], AdmissionHandlers],
        position: Callable[[], int],
        metrics: WebhookMetrics,
        evaluate_quota: EvaluateQuota | None = None,
    ) -> None:
        """Sets up the server; `start` listens.

        Args:
            handlers: returns the handlers over the current State; called for each request.
            position: returns the `cluster` seq of the State.
            evaluate_quota: called last by a webhook with `evaluates_quota`.
        """
        self._listen = listen
        self._webhooks = {webhook.path: webhook for webhook in webhooks}
        self._handlers = handlers
        self._position = position
        self._metrics = metrics
        self._evaluate_quota = evaluate_quota
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._runner: web.AppRunner | None = None

    @property
    def listening(self) -> bool:
        """Returns whether the server accepts requests."""
        return self._runner is not None

    def use_certificate(self, bundle: CertificateBundle) -> None:
        """Uses this certificate from the next connection on; open connections continue."""
        # The ssl module reads certificates from files only; the folder has mode 0700.
        with tempfile.TemporaryDirectory(prefix="koord-webhook-") as folder:
            certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            certificate.write_bytes(bundle.certificate)
            key.write_bytes(bundle.key)
            self._tls.load_cert_chain(certificate, key)

    async def start(self) -> None:
        """Listens. `use_certificate` must be called first.

        Raises:
            OSError: the address is in use or not available.
        """
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_get("/healthz", _healthy)
        application.router.add_post("/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=ANSWER_TIMEOUT_S)
        await runner.setup()
        host, _, port = self._listen.rpartition(":")
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=self._tls).start()
        self._runner = runner

    async def stop(self) -> None:
        """Accepts no more requests; those in progress are answered."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, http_request: web.Request) -> web.Response:
        webhook = self._webhooks.get(http_request.path)
        if webhook is None:
            return web.Response(status=404, text=f"no webhook is served under {http_request.path}\n")
        began = time.monotonic()
        answer = "error"
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                request = admission_review.read(await http_request.read())
                answer, body = await self._answer(webhook, request)
            return web.Response(body=body, content_type="application/json")
        except BadReview as error:
            return web.Response(status=400, text=f"{error}\n")
        except TimeoutError:
            answer = "late"
            return web.Response(status=503, text=f"no answer within {ANSWER_TIMEOUT_S} s\n")
        except KoordError as error:
            log.warning("an admission request cannot be answered", extra={"error": str(error)})
            return web.Response(status=503, text=f"{error}\n")
        except Exception:
            log.exception("an admission request could not be answered", extra={"webhook": webhook.name})
            return web.Response(status=500, text="the webhook failed; see the gateway's log\n")
        finally:
            self._metrics.answers.labels(webhook.name, answer).inc()
            self._metrics.seconds.labels(webhook.name).observe(time.monotonic() - began)

    async def _answer(self, webhook: Webhook, request: Request) -> tuple[str, bytes]:
        """Returns the metric's label and the body of the response."""
        until = asyncio.get_running_loop().time() + REFUSAL_RECHECK_S
        if webhook.exempts:
            if request.namespace == self._handlers().settings.namespace:
                return "exempt", admission_review.allowed(request)
            # A pod may be created right after its namespace, whose watch event is still on its way.
            while not self._handlers().has_namespace(request.namespace) and await self._advanced(
                self._position(), until
            ):
                pass
        while True:
            position = self._position()
            try:
                after = webhook.handle(self._handlers(), request)
                if webhook.evaluates_quota and self._evaluate_quota is not None:
                    await self._evaluate_quota(self._handlers(), request)
            except AdmissionRejected as refused:
                if refused.code in DEPENDS_ON_OTHERS and await self._advanced(position, until):
                    continue
                log.info("refused", extra={"webhook": webhook.name, "code": refused.code, "text": str(refused)})
                return "refused", admission_review.refused(request, webhook.code, refused.code, str(refused))
            return "allowed", admission_review.allowed(request, after)

    async def _advanced(self, position: int, until: float) -> bool:
        """Waits until the State has advanced; returns False after the time-out."""
        clock = asyncio.get_running_loop()
        while self._position() == position:
            if clock.time() >= until:
                return False
            await asyncio.sleep(POLL_INTERVAL_S)
        return True


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
