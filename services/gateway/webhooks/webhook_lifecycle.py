"""Webhooks of the gateway: every replica serves them; the leader keeps certificates and configuration objects."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

from prometheus_client import Gauge

from services.gateway import rbac_permission_check
from services.gateway.kube_api.api_errors import ApiError, Conflict, Forbidden
from services.gateway.kube_api.authenticated_connections import NoCluster
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from services.gateway.webhooks.admission_handlers import AdmissionHandlers, AdmissionSettings, QuotaPod
from services.gateway.webhooks.certificate_bundle import CertificateBundle, Lifetimes, expires_at
from services.gateway.webhooks.certificate_secret import CertificateSecret, utc_time
from services.gateway.webhooks.late_admission import LateAdmission
from services.gateway.webhooks.quota_evaluator import QuotaEvaluator
from services.gateway.webhooks.recent_quotas import RecentQuotas
from services.gateway.webhooks.registration import (
    DesiredRegistration,
    WebhookRegistration,
)
from services.gateway.webhooks.server import WebhookMetrics, WebhookServer
from services.gateway.webhooks.webhook_definitions import Webhook, WebhookEndpoint, enabled_webhooks
from shared.admission.feature_gates import gates_of
from shared.errors import KoordError
from shared.events import Draft
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

OVERLAP_SHARE = 0.02
"""Share of a certificate's lifetime for which a new authority is published before it issues certificates."""


class WebhookLifecycle:
    """Starts and stops the webhooks of one replica, and renews their certificates and configuration as the leader."""

    def __init__(self, runtime: Runtime, api: KubeApi) -> None:
        settings: GatewaySettings = runtime.settings
        self._runtime = runtime
        self._settings = settings
        self.api = api
        self._account = ""
        self._recent = RecentQuotas(time.monotonic)
        self._gates = gates_of(settings.webhook_gates)
        webhooks = tuple(enabled_webhooks(self._gates))
        endpoint, names = _endpoint(settings)
        self._registration = WebhookRegistration(api, _desired(settings, webhooks, endpoint))
        self._certificates = CertificateSecret(api, _secret(settings), names, _lifetimes(settings))
        metrics = WebhookMetrics(runtime.metrics.registry)
        evaluator = QuotaEvaluator(api, runtime.now_ns)
        self._server = WebhookServer(
            settings.webhook_listen, webhooks, self.handlers, self._position, metrics, evaluator.evaluate_quota
        )
        self._expiry = Gauge(
            "koord_gateway_webhook_certificate_ends_seconds",
            "Expiry of the certificate, seconds since the epoch",
            registry=runtime.metrics.registry,
        )

    @property
    def state(self) -> GatewayState:
        """Returns the folded State."""
        state: GatewayState = self._runtime.state
        return state

    def handlers(self) -> AdmissionHandlers:
        """Returns the handlers over the current State."""
        settings = AdmissionSettings(
            self._gates,
            self._settings.webhook_namespace,
            names=self._settings.webhook_strategy_names,
            account=self._account,
        )
        return AdmissionHandlers(self.state.admission, self._pods, settings, self._recent)

    def late_admission(self, append: Callable[[Draft], None]) -> LateAdmission:
        """Returns the check of pods that were created while no webhook answered."""
        return LateAdmission(self.api, self.handlers, lambda: self.state, append)

    def _pods(self) -> Iterator[QuotaPod]:
        return (QuotaPod(key, pod.quota) for key, pod in self.state.pods.items())

    def _position(self) -> int:
        return self.state.positions.get("cluster", 0)

    @property
    def _bundle(self) -> CertificateBundle:
        assert self._certificates.bundle is not None, "certificates come first"
        return self._certificates.bundle

    # -- every replica

    async def serve(self) -> None:
        """Serves with the newest certificate, once the initial lists are folded; until cancelled."""
        await self._read_account()
        try:
            while True:
                await self._read()
                ready = self._certificates.bundle is not None and self.state.admission.listed
                if ready and self._runtime.phase not in ("starting", "following") and not self._server.listening:
                    await self._listen()
                await asyncio.sleep(self._settings.webhook_poll_interval_s if self._server.listening else 0.2)
        finally:
            await self._server.stop()

    async def _read_account(self) -> None:
        with contextlib.suppress(ApiError):
            self._account = await rbac_permission_check.account(self.api)

    async def _read(self) -> None:
        try:
            if await self._certificates.read():
                self._use_certificate()
        except ApiError as error:
            log.warning("webhook certificates cannot be read", extra=_error_fields(error))

    def _use_certificate(self) -> None:
        self._server.use_certificate(self._bundle)
        self._expiry.set(expires_at(self._bundle.certificate).timestamp())

    async def _listen(self) -> None:
        try:
            await self._server.start()
        except OSError as error:
            address = self._settings.webhook_listen
            raise KoordError(f"KOORD_GATEWAY_WEBHOOK_LISTEN is {address!r}: cannot listen there: {error}") from error
        log.info("webhooks are served", extra={"listen": self._settings.webhook_listen})

    # -- the leader

    async def keep_registered(self) -> None:
        """Renews certificates and restores configuration objects, until a stop is requested."""
        runtime = self._runtime
        while not runtime.draining.is_set():
            await runtime.check_lock()
            try:
                if await self._certificates.renew(utc_time(runtime.now_ns())):
                    self._use_certificate()
                # Registered only once this server answers: before that the API server would find no webhook.
                if self._server.listening and (changed := await self._registration.apply_configurations(self._bundle)):
                    log.info("webhook configurations written", extra={"kinds": changed})
            except ApiError as error:
                # After a conflict (another replica wrote first) the next check succeeds by itself.
                log.log(
                    logging.INFO if isinstance(error, Conflict) else logging.WARNING,
                    "certificates or configuration objects of the webhooks cannot be written",
                    extra=_error_fields(error),
                )
            pause_s = self._settings.webhook_poll_interval_s if self._server.listening else 0.2
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await runtime.draining.wait()


@asynccontextmanager
async def lifespan(runtime: Runtime) -> AsyncIterator[WebhookLifecycle | None]:
    """Serves the webhooks, if configured, while the process runs; none in shadow mode, which writes nothing."""
    settings: GatewaySettings = runtime.settings
    if not settings.webhook_listen:
        yield None
        return
    if settings.shadow:
        log.warning("webhooks are off in shadow mode: nothing is written, not even their configuration")
        yield None
        return
    try:
        async with KubeApi(settings.kubeconfig, timeout_s=settings.timeout_s) as api:
            webhooks = WebhookLifecycle(runtime, api)
            serving = asyncio.create_task(webhooks.serve(), name="webhooks")
            serving.add_done_callback(lambda task: None if task.cancelled() else runtime.drain())
            try:
                yield webhooks
            finally:
                serving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    # Raises the error that has ended the task, so that it ends the process.
                    await serving
    except NoCluster as error:
        raise KoordError(str(error)) from error


def _endpoint(settings: GatewaySettings) -> tuple[WebhookEndpoint, tuple[str, ...]]:
    """Returns the endpoint of the webhooks, and the host names and addresses that the certificate names."""
    names: tuple[str, ...]
    namespace, _, rest = settings.webhook_service.partition("/")
    name, _, port = rest.partition(":")
    if settings.webhook_url:
        host = settings.webhook_url.removeprefix("https://").partition("/")[0].rpartition(":")[0].strip("[]")
        endpoint, names = WebhookEndpoint(None, settings.webhook_url), (host,)
    elif name:
        endpoint = WebhookEndpoint((namespace, name, int(port or 443)))
        names = (f"{name}.{namespace}.svc", f"{name}.{namespace}", f"{name}.{namespace}.svc.cluster.local")
    else:
        raise KoordError(
            f"KOORD_GATEWAY_WEBHOOK_SERVICE is {settings.webhook_service!r}; give namespace/name or namespace/name:port"
        )
    return endpoint, names


def _desired(
    settings: GatewaySettings, webhooks: tuple[Webhook, ...], endpoint: WebhookEndpoint
) -> DesiredRegistration:
    return DesiredRegistration(
        webhooks=webhooks,
        endpoint=endpoint,
        namespace=settings.webhook_namespace,
        failure_policy=settings.webhook_failure_policy,
    )


def _secret(settings: GatewaySettings) -> str:
    return f"{settings.webhook_namespace}/{settings.webhook_certificates}"


def _lifetimes(settings: GatewaySettings) -> Lifetimes:
    certificate = timedelta(seconds=settings.webhook_certificate_s)
    return Lifetimes(timedelta(seconds=settings.webhook_authority_s), certificate, OVERLAP_SHARE * certificate)


def _error_fields(error: ApiError) -> dict[str, str]:
    """Returns the log fields of an API error."""
    rule = {"rule": error.rule} if isinstance(error, Forbidden) else {}
    return {"error": str(error), **rule}
