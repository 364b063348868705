"""Entry point of the gateway: runs watches, appends and effects while this replica writes `cluster`."""

import asyncio
import logging
from collections.abc import Callable

import stamina.instrumentation

from services.gateway.cluster_identity import claim_cluster, confirm_cluster
from services.gateway.cluster_lease import ClusterLease
from services.gateway.effects import outcome_events, outcomes_without_api_request
from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.effects.operator_eviction_hold_requests import EvictionControl
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import watched_resources
from services.gateway.metrics import GatewayMetrics
from services.gateway.rbac_permission_check import SharedCheck
from services.gateway.retention_carry_forward import CARRY_FORWARD, EVICTION_CONTROL
from services.gateway.service_manifest import MANIFEST
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from services.gateway.watch.api_server_probe import probe
from services.gateway.watch.incomplete_list_guard import ShortListLimits, ShortLists
from services.gateway.watch.observation_buffer import ObservationBuffer
from services.gateway.watch.operator_list_confirmation_requests import ListRequests
from services.gateway.watch.unread_resources import Outages, find_unreachable, unreachable
from services.gateway.watch.watcher import Watcher
from services.gateway.webhooks.webhook_lifecycle import WebhookLifecycle, lifespan
from shared.events import Cause, Draft
from shared.events.cluster import (
    OBSERVATIONS,
    OUTCOMES,
    AdmissionMissed,
    ClusterIdentified,
    InitialListCompleted,
    SecondSystemRefused,
    ShortListConfirmed,
    ShortListFound,
    WatchResumed,
)
from shared.events.log import WriterStarted
from shared.events.metrics import NodeReported
from shared.kube.eviction_control import SUBJECT as SUBJECT_OF_EVICTIONS
from shared.kube.rbac_permissions import SUBJECT
from shared.runtime import failpoints
from shared.runtime.intent_rights import INTENTS
from shared.runtime.rate_limit import RateLimit
from shared.runtime.service import Runtime, Service
from shared.runtime.task_cancellation import cancel_and_wait
from shared.runtime.task_group_errors import first_error_alone

log = logging.getLogger(__name__)

DRAIN_TIMEOUT_S = 5.0
"""Time for effects in flight to end after a stop is requested; those that have not ended stay due."""

APPENDS_PER_S = 125
STARTS_PER_S = 250
"""Upper limits: under load an append has the events of several pods. A single event after a pause does not wait."""

POLL_INTERVAL_S = 1.0
"""Interval of checks for drift whose pause has ended, when nothing else wakes the loop."""

SHADOW = "shadow mode: nothing is written to the cluster; no pod is bound, evicted or moved, and no node is cordoned"


class Gateway:
    """One term as the writer of `cluster`: from the first list to the end of the process."""

    _effect_runner: EffectRunner
    _eviction_control: EvictionControl
    _lease: ClusterLease | None = None

    def __init__(self, runtime: Runtime, api: KubeApi) -> None:
        self._runtime = runtime
        self._settings: GatewaySettings = runtime.settings
        self._api = api
        self._to_append = asyncio.Event()
        self._to_start = asyncio.Event()
        self._listed = asyncio.Event()
        self._drained = False
        self._outcomes: list[Draft] = []
        self._drift_tracker = DriftTracker()
        self._metrics = GatewayMetrics(runtime.metrics.registry)
        self._resources = watched_resources(self._settings.config_namespace)
        names = [resource.name for resource in self._resources]
        self._observations = ObservationBuffer(
            names,
            lambda: self._state,
            self._drift_tracker,
            self._to_append.set,
            self._metrics.listed,
            ShortLists(
                ShortListLimits(self._settings.short_list_percent, self._settings.short_list_min), runtime.now_ns
            ),
        )
        self._metrics.watch_short_lists(self._observations.short_lists)
        self._metrics.watch_outages(self._observations.outages)
        self._metrics.watch_given_up(lambda: len(self._state.intents.given_up))
        self._metrics.watch_evictions(lambda: self._state.evictions)

    @property
    def _state(self) -> GatewayState:
        state: GatewayState = self._runtime.state
        return state

    @property
    def outages(self) -> Outages:
        """Returns the resources that are not read at the moment."""
        return self._observations.outages

    def halts(self) -> list[str]:
        """Returns why no effects are started at the moment, and what to do; empty while they are."""
        return [*([SHADOW] if self._settings.shadow else []), *self._observations.short_lists.halts()]

    async def run(self) -> None:
        """Works until a stop is requested, beside no other system that writes to the cluster."""
        requests = ListRequests(
            self._observations,
            self._append_later,
            self._runtime.rejections,
            lambda: find_unreachable(self._api, self.outages, self._runtime.now_ns),
        )
        async with asyncio.TaskGroup() as group:
            self._effect_runner = EffectRunner(
                self._api,
                self._settings,
                self._drift_tracker,
                now_ns=self._runtime.now_ns,
                check_lock=self._runtime.check_lock,
                append=self._append_later,
                count=self._metrics.outcome,
                group=group,
            )
            group.create_task(self._append(), name="append")
            self._eviction_control = EvictionControl(self._runtime, self._append_later)
            # Before the first request to the API server, which may not answer: `koord cluster status` shows that, and an
            # operator may hold evictions meanwhile.
            await requests.serve(self._runtime.bus)
            await self._runtime.bus.handle(SUBJECT_OF_EVICTIONS, self._eviction_control.receive)
            group.create_task(self._wake_on_change(), name="wake on change")
            if await self._has_cluster():
                await self._work(group)
            self._drained = True
            self._to_append.set()
        if self._lease is not None:
            await self._lease.release()

    async def _has_cluster(self) -> bool:
        """Waits until this system may work on the cluster; returns False if a stop is requested first."""
        if not await confirm_cluster(self._runtime, self._api, self.outages):
            return False
        if self._settings.shadow:
            return True
        self._lease = await claim_cluster(self._runtime, self._api, self.outages, self._append_later)
        if self._lease is None:
            return False
        self._lease.hold_writes(self._api)
        if self._webhooks is not None:
            self._lease.hold_writes(self._webhooks.api)
        return True

    async def _work(self, group: asyncio.TaskGroup) -> None:
        """Works until a stop is requested; then lets effects end, whose outcomes are appended after that."""
        # An earlier gateway may have acted on intents that no event of its own shows, and the bus may be behind.
        await self._runtime.follower.read_to_heads()
        self._effect_runner.before_lists(self._state)
        watchers = [Watcher(self._api, resource, self._settings, self._observations) for resource in self._resources]
        inputs = [group.create_task(watcher.run(), name=f"watch {watcher.name}") for watcher in watchers]
        inputs.append(group.create_task(self._report_outages(), name="outages"))
        if self._settings.quiet_s:
            inputs.append(group.create_task(probe(self._api, self.outages, self._settings.quiet_s), name="probe"))
        lease = group.create_task(self._lease.keep(), name="lease") if self._lease else None
        inputs.append(group.create_task(self._end_without_object(), name="desired states without object"))
        if self._webhooks is not None:
            late_admission = self._webhooks.late_admission(self._append_later)
            self._runtime.before_fold(late_admission.observe)
            group.create_task(self._webhooks.keep_registered(), name="webhook registration")
            inputs.append(group.create_task(late_admission.run(self._runtime.now_ns), name="late admission"))
        starting = group.create_task(self._start(), name="start")
        await self._runtime.draining.wait()
        await cancel_and_wait(*inputs)
        # A task that uses the writer's connection is never cancelled, which could cut a transaction: it ends by itself.
        if self._listed.is_set():
            self._to_start.set()
            await starting
        else:
            starting.cancel()
        await self._effect_runner.drain(DRAIN_TIMEOUT_S)
        if lease is not None:
            await cancel_and_wait(lease)

    @property
    def _webhooks(self) -> WebhookLifecycle | None:
        webhooks: WebhookLifecycle | None = self._runtime.resources
        return webhooks

    def _append_later(self, outcome: Draft) -> None:
        self._outcomes.append(outcome)
        self._to_append.set()
        self._to_start.set()

    async def _wake_on_change(self) -> None:
        """Wakes the start of effects after each fold."""
        while not self._runtime.draining.is_set():
            await self._runtime.changed()
            await self._eviction_control.answer_recorded()
            self._to_start.set()

    async def _start(self) -> None:
        """Starts effects, once the log has the initial lists."""
        await self._listed.wait()
        log.info(
            "listed",
            extra={
                "pods": len(self._state.pods),
                "due": len(self._state.intents.one_shots) + len(self._state.intents.desired),
            },
        )
        rate_limit = RateLimit(STARTS_PER_S)
        while not self._runtime.draining.is_set():
            await rate_limit.wait()
            self._to_start.clear()
            intents = self._state.intents
            # While a list is not believed, what effects would rest on may not exist.
            held = self._observations.short_lists.held or not (self._lease is None or self._lease.permits_effects)
            started = not held and await self._effect_runner.start(self._state)
            if started or intents.superseded or intents.outranked or intents.refused:
                self._to_append.set()
            try:
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._to_start.wait()
            except TimeoutError:
                continue

    async def _append(self) -> None:
        """Appends one batch per wake; drafts that arrive meanwhile are the next batch."""
        rate_limit = RateLimit(APPENDS_PER_S)
        while not self._drained:
            await self._to_append.wait()
            await rate_limit.wait()
            # Cleared before the batch is taken: a draft that arrives during the append sets it again.
            self._to_append.clear()
            await self._append_once()
            if not self._observations.empty:
                self._to_append.set()
            elif not self._observations.not_listed and not self._listed.is_set():
                listed = InitialListCompleted(objects=sum(map(len, self._state.known.values())))
                await self._runtime.append([Draft(listed)], now_ns=self._runtime.now_ns())
                self._listed.set()

    async def _append_once(self) -> None:
        drafts = self._observations.take()
        ended, self._outcomes = self._outcomes, []
        drafts += ended
        if self._listed.is_set():
            drafts += outcomes_without_api_request.superseded_outcomes(self._state, self._effect_runner.in_flight)
        if self._listed.is_set() and self._state.intents.refused:
            drafts += self._refused_outcomes()
        if not drafts:
            return
        failpoints.hit("gateway.before-append")
        await self._runtime.append(drafts, now_ns=self._runtime.now_ns())
        failpoints.hit("gateway.after-commit")
        self._effect_runner.appended(ended)

    def _refused_outcomes(self) -> list[Draft]:
        drafts = outcomes_without_api_request.refused_outcomes(self._state)
        for cause, outcome in self._state.intents.refused.items():
            self._metrics.refused(cause.context, outcome.intent)
            log.error("refused an intent", extra={"intent": str(cause), "reason": outcome.reason})
        return drafts

    async def _report_outages(self) -> None:
        """Logs, once a `list_alarm_s`, why resources have not been read for that long."""
        limit_s = self._settings.list_alarm_s
        while True:
            await asyncio.sleep(limit_s / 10)
            self._observations.outages.log_lasting(limit_s)

    async def _end_without_object(self) -> None:
        """Ends desired states whose object does not exist.

        An object must be missing in two consecutive checks, so that a short absence (deleted and created again) ends
        nothing.
        """
        before: set[Cause] = set()
        names = frozenset(resource.name for resource in self._resources)
        await self._listed.wait()
        while True:
            self._drift_tracker.forget_ended(self._state)
            missing = outcomes_without_api_request.without_object(self._state, names)
            for cause in sorted(missing & before):
                desired = self._state.intents.in_force(cause)
                self._append_later(outcome_events.outcome_draft(cause, desired, outcome_events.superseded(desired)))
            before = missing
            await asyncio.sleep(self._settings.sweep_interval_s)


async def lead(runtime: Runtime, connect: Callable[..., KubeApi] = KubeApi) -> None:
    """Runs the gateway for as long as this replica writes `cluster`, over the API to which `connect` connects."""
    settings: GatewaySettings = runtime.settings
    # effect_runner.py and watcher.py log retries themselves, once each.
    stamina.instrumentation.set_on_retry_hooks(())
    if settings.shadow:
        log.info("shadow mode: nothing is written to the API")
    async with connect(settings.kubeconfig, timeout_s=settings.timeout_s, read_only=settings.shadow) as api:
        with first_error_alone():
            gateway = Gateway(runtime, api)
            runtime.unreachable_servers.append(
                lambda: unreachable(gateway.outages.current(), api.server, runtime.now_ns(), api.silent_s)
            )
            runtime.halted.append(gateway.halts)
            await gateway.run()


SERVICE = Service(
    manifest=MANIFEST,
    follows={
        "cluster": (
            *OBSERVATIONS,
            *OUTCOMES,
            *EVICTION_CONTROL,
            ClusterIdentified,
            InitialListCompleted,
            AdmissionMissed,
            WriterStarted,
        ),
        "scheduling": INTENTS,
        "quota": INTENTS,
        "slo": INTENTS,
        "descheduling": INTENTS,
        "metrics-*": (*INTENTS, NodeReported),
        "nodes-*": INTENTS,
        "devices-*": INTENTS,
        "audit": INTENTS,
    },
    emits=(
        *OBSERVATIONS,
        *OUTCOMES,
        *EVICTION_CONTROL,
        ClusterIdentified,
        InitialListCompleted,
        SecondSystemRefused,
        ShortListConfirmed,
        ShortListFound,
        WatchResumed,
        AdmissionMissed,
        WriterStarted,
    ),
    settings=GatewaySettings,
    new_state=GatewayState,
    lead=lead,
    serves={SUBJECT: SharedCheck().serve},
    carry_forward=CARRY_FORWARD,
    lifespan=lifespan,
)
"""The gateway. A context that begins to append intents is declared, and added to `follows` with `INTENTS`."""
