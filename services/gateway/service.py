"""The gateway's shell: watches in, appends out, effects as soon as an intent is folded."""

import asyncio
import logging

import stamina.instrumentation

from services.gateway import permissions
from services.gateway.effects import outcomes
from services.gateway.effects.effect_runner import Carrier
from services.gateway.effects.intents import ANY_INTENTS, SCHEDULING_INTENTS
from services.gateway.effects.write_tracker import Echoes
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import followed
from services.gateway.manifest import MANIFEST
from services.gateway.metrics import GatewayMetrics
from services.gateway.rate_limit import Pace
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from services.gateway.watch.observation_buffer import Intake
from services.gateway.watch.watcher import Watcher
from services.gateway.webhooks.service import Webhooks, beside
from shared.errors import KoordError
from shared.events import Cause, Draft
from shared.events.cluster import ENDED_BY, OBSERVATIONS, OUTCOMES, AdmissionMissed, InitialListCompleted, WatchResumed
from shared.events.log import WriterStarted
from shared.kube.rbac_permissions import SUBJECT
from shared.runtime import failpoints
from shared.runtime.service import Runtime, Service
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

SETTLE_S = 5.0
"""How long effects under way may take to end when the process is asked to stop; what has not ended stays due."""

APPENDS_PER_S = 125
STARTS_PER_S = 250
"""At most: under load an append then holds several pods' events. A single one after a pause does not wait."""

POLL_INTERVAL_S = 1.0
"""How often drift whose pause has ended is looked for, when nothing else happens."""


class Gateway:
    """One leadership: from the first list to the end of the process."""

    _carrier: Carrier

    def __init__(self, runtime: Runtime, api: KubeApi) -> None:
        self._runtime = runtime
        self._settings: GatewaySettings = runtime.settings
        self._api = api
        self._to_append = asyncio.Event()
        self._to_start = asyncio.Event()
        self._listed = asyncio.Event()
        self._settled = False
        self._outcomes: list[Draft] = []
        self._echoes = Echoes()
        self._metrics = GatewayMetrics(runtime.metrics.registry)
        self._resources = followed(self._settings.config_namespace)
        names = [resource.name for resource in self._resources]
        self._intake = Intake(names, lambda: self._state, self._echoes, self._to_append.set, self._metrics.listed)

    @property
    def _state(self) -> GatewayState:
        state: GatewayState = self._runtime.state
        return state

    async def run(self) -> None:
        """Work until the process is asked to stop; then let effects end and append their outcomes."""
        async with asyncio.TaskGroup() as group:
            self._carrier = Carrier(
                self._api,
                self._settings,
                self._echoes,
                now_ns=self._runtime.now_ns,
                check_lock=self._runtime.check_lock,
                ended=self._ended,
                counted=self._metrics.outcome,
                group=group,
            )
            watchers = [Watcher(self._api, resource, self._settings, self._intake) for resource in self._resources]
            eyes = [group.create_task(watcher.run(), name=f"watch {watcher.name}") for watcher in watchers]
            eyes.append(group.create_task(self._sweep(), name="sweep"))
            group.create_task(self._append(), name="append")
            group.create_task(self._follow(), name="follow")
            if self._webhooks is not None:
                judge = self._webhooks.judge(self._ended)
                self._runtime.before_fold(judge.look)
                group.create_task(self._webhooks.keep(), name="webhooks' objects")
                eyes.append(group.create_task(judge.run(self._runtime.now_ns), name="judge"))
            starting = group.create_task(self._start(), name="start")
            await self._runtime.draining.wait()
            await cancel_and_wait(*eyes)
            # What uses the writer's connection is never cancelled: it ends by itself.
            if self._listed.is_set():
                self._to_start.set()
                await starting
            else:
                starting.cancel()
            await self._carrier.settle(SETTLE_S)
            self._settled = True
            self._to_append.set()

    @property
    def _webhooks(self) -> Webhooks | None:
        webhooks: Webhooks | None = self._runtime.resources
        return webhooks

    def _ended(self, outcome: Draft) -> None:
        self._outcomes.append(outcome)
        self._to_append.set()
        self._to_start.set()

    async def _follow(self) -> None:
        """What is folded may be due."""
        while not self._runtime.draining.is_set():
            await self._runtime.changed()
            self._to_start.set()

    async def _start(self) -> None:
        """Start effects, once the log says what is there."""
        await self._listed.wait()
        log.info(
            "listed", extra={"pods": len(self._state.pods), "due": len(self._state.acts) + len(self._state.levels)}
        )
        pace = Pace(STARTS_PER_S)
        while not self._runtime.draining.is_set():
            await pace.turn()
            self._to_start.clear()
            if await self._carrier.start(self._state) or self._state.superseded:
                self._to_append.set()
            try:
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._to_start.wait()
            except TimeoutError:
                continue

    async def _append(self) -> None:
        """One append per wake; what comes meanwhile is the next one."""
        pace = Pace(APPENDS_PER_S)
        while not self._settled:
            await self._to_append.wait()
            await pace.turn()
            self._to_append.clear()
            await self._append_once()
            if not self._intake.empty:
                self._to_append.set()
            elif not self._intake.awaited and not self._listed.is_set():
                listed = InitialListCompleted(objects=sum(map(len, self._state.known.values())))
                await self._runtime.append([Draft(listed)], now_ns=self._runtime.now_ns())
                self._listed.set()

    async def _append_once(self) -> None:
        drafts = self._intake.take()
        ended, self._outcomes = self._outcomes, []
        drafts += ended
        if self._listed.is_set() and self._state.superseded:
            drafts += outcomes.supersessions(self._state, self._carrier.taken)
        if not drafts:
            return
        failpoints.hit("gateway.before-append")
        await self._runtime.append(drafts, now_ns=self._runtime.now_ns())
        failpoints.hit("gateway.after-commit")
        self._carrier.release(outcome.cause for outcome in ended if outcome.cause)

    async def _sweep(self) -> None:
        """End the levels of objects that are gone: those that were missing at two looks in a row."""
        before: set[Cause] = set()
        names = frozenset(resource.name for resource in self._resources)
        await self._listed.wait()
        while True:
            self._echoes.keep(self._state)
            missing = outcomes.ownerless(self._state, names)
            for cause in sorted(missing & before):
                level = self._state.held.get(cause) or self._state.withheld[cause].level
                self._ended(outcomes.answer(cause, level, outcomes.superseded(level)))
            before = missing
            await asyncio.sleep(self._settings.sweep_interval_s)


async def lead(runtime: Runtime) -> None:
    """Speak to the Kubernetes API for as long as this replica writes `cluster`."""
    settings: GatewaySettings = runtime.settings
    stamina.instrumentation.set_on_retry_hooks(())  # our own lines say what is retried, and once
    if settings.shadow:
        log.info("shadow mode: nothing is written to the API")
    async with KubeApi(settings.kubeconfig, timeout_s=settings.timeout_s, read_only=settings.shadow) as api:
        try:
            await Gateway(runtime, api).run()
        except* KoordError as failed:
            raise failed.exceptions[0] from None


SERVICE = Service(
    manifest=MANIFEST,
    follows={
        "cluster": (*OBSERVATIONS, *OUTCOMES, InitialListCompleted, AdmissionMissed, WriterStarted),
        "scheduling": (*SCHEDULING_INTENTS, *ANY_INTENTS),
        "quota": ANY_INTENTS,
        "slo": ANY_INTENTS,
        "metrics-*": ANY_INTENTS,
        "nodes-*": ANY_INTENTS,
        "audit": ANY_INTENTS,
    },
    emits=(*OBSERVATIONS, *OUTCOMES, InitialListCompleted, WatchResumed, AdmissionMissed, WriterStarted),
    settings=GatewaySettings,
    new_state=GatewayState,
    lead=lead,
    serves={SUBJECT: permissions.answer},
    carries_forward=ENDED_BY,
    lifespan=beside,
)
"""The gateway. A context that comes to append intents is declared, and added to `follows` with `ANY_INTENTS`."""
