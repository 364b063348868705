"""The webhooks beside the gateway's other work: what every replica does, and what only the one that leads does."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

from prometheus_client import Gauge

from services.gateway import permissions
from services.gateway.kube_api.api_errors import ApiProblem
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.credentials import NoCluster
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from services.gateway.webhooks.certificates import Terms as Lifetimes
from services.gateway.webhooks.certificates import ends
from services.gateway.webhooks.handlers import Desk, Held, Terms
from services.gateway.webhooks.late_admission import Judge
from services.gateway.webhooks.quota_evaluator import Evaluator
from services.gateway.webhooks.recent_quotas import Recent
from services.gateway.webhooks.registration import Keeper, Wanted, harmless, instant, said
from services.gateway.webhooks.server import WebhookMetrics, WebhookServer
from services.gateway.webhooks.webhook_definitions import Hook, Place, served
from shared.admission.feature_gates import gates_of
from shared.errors import KoordError
from shared.events import Draft
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

OVERLAP_SHARE = 0.02
"""How long a new authority is known before it issues: this share of a certificate's life."""


class Webhooks:
    """One replica's webhooks."""

    def __init__(self, runtime: Runtime, api: KubeApi) -> None:
        settings: GatewaySettings = runtime.settings
        self._runtime = runtime
        self._settings = settings
        self._api = api
        self._account = ""
        self._recent = Recent(time.monotonic)
        self._gates = gates_of(settings.webhook_gates)
        hooks = tuple(served(self._gates))
        self._keeper = Keeper(api, _wanted(settings, hooks))
        metrics = WebhookMetrics(runtime.metrics.registry)
        evaluator = Evaluator(api, runtime.now_ns)
        self._server = WebhookServer(
            settings.webhook_listen, hooks, self.desk, self._position, metrics, evaluator.measure
        )
        self._until = Gauge(
            "koord_gateway_webhook_certificate_ends_seconds",
            "When the certificate ends, since the epoch",
            registry=runtime.metrics.registry,
        )

    @property
    def state(self) -> GatewayState:
        """As it is folded."""
        state: GatewayState = self._runtime.state
        return state

    def desk(self) -> Desk:
        """What to answer from, now."""
        settings = self._settings
        terms = Terms(
            self._gates,
            settings.webhook_namespace,
            names=settings.webhook_strategy_names,
            account=self._account,
        )
        return Desk(self.state.admission, self._held, terms, self._recent)

    def judge(self, say: Callable[[Draft], None]) -> Judge:
        """A judge of what comes in past the webhooks."""
        return Judge(self._api, self.desk, lambda: self.state, say)

    def _held(self) -> Iterator[Held]:
        return (Held(pod.key, pod.quota) for pod in self.state.pods.values())

    def _position(self) -> int:
        return self.state.positions.get("cluster", 0)

    # -- every replica

    async def serve(self) -> None:
        """Show the newest certificate, and answer from when everything is known; until cancelled."""
        await self._introduce()
        try:
            while True:
                await self._read()
                ready = self._keeper.bundle is not None and self.state.admission.listed
                if ready and self._runtime.phase not in ("starting", "following") and not self._server.listening:
                    await self._listen()
                await asyncio.sleep(self._settings.webhook_poll_interval_s if self._server.listening else 0.2)
        finally:
            await self._server.stop()

    async def _introduce(self) -> None:
        with contextlib.suppress(ApiProblem):
            self._account = await permissions.account(self._api)

    async def _read(self) -> None:
        try:
            if await self._keeper.read():
                self._show()
        except ApiProblem as problem:
            log.warning("webhook certificates cannot be read", extra=said(problem))

    def _show(self) -> None:
        assert self._keeper.bundle is not None, "it has just been read"
        self._server.show(self._keeper.bundle)
        self._until.set(ends(self._keeper.bundle.certificate).timestamp())

    async def _listen(self) -> None:
        try:
            await self._server.start()
        except OSError as error:
            address = self._settings.webhook_listen
            raise KoordError(f"KOORD_GATEWAY_WEBHOOK_LISTEN is {address!r}, which cannot be had: {error}") from error
        log.info("webhooks are served", extra={"listen": self._settings.webhook_listen})

    # -- the one that leads

    async def keep(self) -> None:
        """Keep certificates and configuration objects as they must be, until the process is asked to stop."""
        runtime = self._runtime
        while not runtime.draining.is_set():
            await runtime.check_lock()
            try:
                if await self._keeper.renew(instant(runtime.now_ns())):
                    self._show()
                if self._server.listening and (mended := await self._keeper.mend()):
                    log.info("webhook configurations written", extra={"kinds": mended})
            except ApiProblem as problem:
                log.log(
                    logging.INFO if harmless(problem) else logging.WARNING,
                    "the webhooks' objects cannot be kept in place",
                    extra=said(problem),
                )
            pause_s = self._settings.webhook_poll_interval_s if self._server.listening else 0.2
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await runtime.draining.wait()


@asynccontextmanager
async def beside(runtime: Runtime) -> AsyncIterator[Webhooks | None]:
    """Around the gateway's life: its webhooks, where they are configured; none in shadow mode, which writes nothing."""
    settings: GatewaySettings = runtime.settings
    if not settings.webhook_listen:
        yield None
        return
    if settings.shadow:
        log.warning("webhooks are off in shadow mode: nothing is written, their configuration neither")
        yield None
        return
    try:
        async with KubeApi(settings.kubeconfig, timeout_s=settings.timeout_s) as api:
            webhooks = Webhooks(runtime, api)
            serving = asyncio.create_task(webhooks.serve(), name="webhooks")
            serving.add_done_callback(lambda task: None if task.cancelled() else runtime.drain())
            try:
                yield webhooks
            finally:
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await serving  # an error that has ended it ends the process
    except NoCluster as error:
        raise KoordError(str(error)) from error


def _wanted(settings: GatewaySettings, hooks: tuple[Hook, ...]) -> Wanted:
    names: tuple[str, ...]
    namespace, _, rest = settings.webhook_service.partition("/")
    name, _, port = rest.partition(":")
    if settings.webhook_url:
        host = settings.webhook_url.removeprefix("https://").partition("/")[0].rpartition(":")[0].strip("[]")
        place, names = Place(None, settings.webhook_url), (host,)
    elif name:
        place = Place((namespace, name, int(port or 443)))
        names = (f"{name}.{namespace}.svc", f"{name}.{namespace}", f"{name}.{namespace}.svc.cluster.local")
    else:
        raise KoordError(
            f"KOORD_GATEWAY_WEBHOOK_SERVICE is {settings.webhook_service!r}; give namespace/name or namespace/name:port"
        )
    certificate = timedelta(seconds=settings.webhook_certificate_s)
    return Wanted(
        hooks=hooks,
        place=place,
        names=names,
        secret=f"{settings.webhook_namespace}/{settings.webhook_certificates}",
        namespace=settings.webhook_namespace,
        failure_policy=settings.webhook_failure_policy,
        terms=Lifetimes(timedelta(seconds=settings.webhook_authority_s), certificate, OVERLAP_SHARE * certificate),
    )
