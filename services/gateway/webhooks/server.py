"""The HTTPS server that the API server asks. Every replica has one, leading or not; it listens once it knows enough to answer.

Whatever goes wrong here must not keep pods from being created: it is answered as an error, and the failure policy says what that means.
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
from services.gateway.webhooks.admission_review import BadReview, Request
from services.gateway.webhooks.certificates import Bundle
from services.gateway.webhooks.handlers import Desk
from services.gateway.webhooks.webhook_definitions import Hook
from shared.admission.rejection import Refused
from shared.errors import KoordError

log = logging.getLogger(__name__)

Measure = Callable[[Desk, Request], Awaitable[None]]
"""Lets a pod in if its quota has room; raises Refused otherwise."""

ANSWER_WITHIN_S = 1.8
"""Below the API server's own limit, so that it hears an answer."""

PATIENCE_S = 1.0
"""How long a refusal that rests on other objects waits for news of them: what was created a moment ago is observed in this time."""

POLL_INTERVAL_S = 0.02
LARGEST_BODY = 8 << 20

MAY_CHANGE = frozenset({
    "priorityClass", "quotaMeta", "exists", "namespaceBound", "unknown", "hasChildren", "hasPods", "treeID",
    "parentMissing", "parentNotParent", "keys", "minSum", "guarantee", "ExistNodeConfict",
})  # fmt: skip
"""Refusals that rest on other objects."""


class WebhookMetrics:
    """Counters in a service's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answers = Counter(
            "koord_gateway_admissions", "Questions of the API server answered", ("webhook", "answer"), registry=registry
        )
        self.seconds = Histogram(
            "koord_gateway_admission_seconds",
            "From a question to its answer",
            ("webhook",),
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 2),
            registry=registry,
        )


class WebhookServer:
    """Answers on `host:port`, with whatever certificate it was last shown."""

    def __init__(
        self,
        listen: str,
        hooks: Iterable[Hook],
        desk: Callable[[], Desk],
        position: Callable[[], int],
        metrics: WebhookMetrics,
        measure: Measure | None = None,
    ) -> None:
        """Prepare.

        Args:
            desk: what to answer from, asked for at each question.
            position: how far the followed state has come.
            measure: what a webhook that measures asks last.
        """
        self._listen = listen
        self._hooks = {hook.path: hook for hook in hooks}
        self._desk = desk
        self._position = position
        self._metrics = metrics
        self._measure = measure
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._runner: web.AppRunner | None = None

    @property
    def listening(self) -> bool:
        """Whether questions are taken."""
        return self._runner is not None

    def show(self, bundle: Bundle) -> None:
        """Show this certificate from the next connection on; those that are open go on."""
        with tempfile.TemporaryDirectory(prefix="koord-webhook-") as folder:  # ssl reads files only; mode 0700
            certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
            certificate.write_bytes(bundle.certificate)
            key.write_bytes(bundle.key)
            self._tls.load_cert_chain(certificate, key)

    async def start(self) -> None:
        """Listen. `show` comes first.

        Raises:
            OSError: the address cannot be had.
        """
        application = web.Application(client_max_size=LARGEST_BODY)
        application.router.add_get("/healthz", _healthy)
        application.router.add_post("/{path:.*}", self._ask)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=ANSWER_WITHIN_S)
        await runner.setup()
        host, _, port = self._listen.rpartition(":")
        await web.TCPSite(runner, host.strip("[]") or None, int(port), ssl_context=self._tls).start()
        self._runner = runner

    async def stop(self) -> None:
        """Take no more questions; those under way are answered."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _ask(self, asked: web.Request) -> web.Response:
        hook = self._hooks.get(asked.path)
        if hook is None:
            return web.Response(status=404, text=f"no webhook is served under {asked.path}\n")
        began = time.monotonic()
        said = "error"
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                request = admission_review.read(await asked.read())
                said, body = await self._answer(hook, request)
            return web.Response(body=body, content_type="application/json")
        except BadReview as error:
            return web.Response(status=400, text=f"{error}\n")
        except TimeoutError:
            said = "late"
            return web.Response(status=503, text=f"no answer within {ANSWER_WITHIN_S} s\n")
        except KoordError as error:
            log.warning("a question of the API server cannot be answered", extra={"error": str(error)})
            return web.Response(status=503, text=f"{error}\n")
        except Exception:
            log.exception("a question of the API server could not be answered", extra={"webhook": hook.name})
            return web.Response(status=500, text="the webhook failed; the gateway's log says how\n")
        finally:
            self._metrics.answers.labels(hook.name, said).inc()
            self._metrics.seconds.labels(hook.name).observe(time.monotonic() - began)

    async def _answer(self, hook: Hook, request: Request) -> tuple[str, bytes]:
        until = asyncio.get_running_loop().time() + PATIENCE_S
        if hook.exempts:
            if request.namespace == self._desk().terms.namespace:
                return "exempt", admission_review.allowed(request)
            while not self._desk().knows_namespace(request.namespace) and await self._news(self._position(), until):
                pass
        while True:
            position = self._position()
            try:
                after = hook.answer(self._desk(), request)
                if hook.measures and self._measure is not None:
                    await self._measure(self._desk(), request)
            except Refused as refused:
                if refused.code in MAY_CHANGE and await self._news(position, until):
                    continue
                log.info("refused", extra={"webhook": hook.name, "code": refused.code, "text": str(refused)})
                return "refused", admission_review.refused(request, hook.code, refused.code, str(refused))
            return "allowed", admission_review.allowed(request, after)

    async def _news(self, position: int, until: float) -> bool:
        """Wait for the state to go on; False when the time is over."""
        clock = asyncio.get_running_loop()
        while self._position() == position:
            if clock.time() >= until:
                return False
            await asyncio.sleep(POLL_INTERVAL_S)
        return True


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")
