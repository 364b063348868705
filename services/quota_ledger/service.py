"""The quota ledger's process: catches up with the followed logs, decides charge requests, checks overuse at intervals.

Source: architecture.md, Charging quota.
"""

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from hashlib import sha256

from prometheus_client import Counter

from services.quota_ledger.charge_inbox import ChargeInbox, PendingCharge
from services.quota_ledger.decide.charge import charge
from services.quota_ledger.decide.decide_ledger_events import overuse, postings, runtimes, structure
from services.quota_ledger.decide.kubernetes_events_about_quotas import object_events
from services.quota_ledger.decide.pod_changes import MAX_PODS
from services.quota_ledger.decide.profile_quotas import profile_quotas
from services.quota_ledger.decide.quota_status import statuses
from services.quota_ledger.http_api.upstream_quota_debug_api import serving
from services.quota_ledger.metrics import QuotaMetrics
from services.quota_ledger.retention_carry_forward import CARRY_FORWARD
from services.quota_ledger.service_manifest import MANIFEST
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED, OWN, LedgerState
from shared.domain.quota_charge import SUBJECT
from shared.events import Draft
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, WriterStarted
from shared.kube.instants import SECOND
from shared.runtime import failpoints
from shared.runtime.garbage_collection import uncollected
from shared.runtime.http_server import Ports
from shared.runtime.service import Runtime, Service

PARTS = 40
"""Parts of the statuses and metrics in one interval, at most."""


class Leader:
    """The ledger while it leads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: LedgerSettings = runtime.settings
        self._inbox = ChargeInbox(runtime.follower.wake, asyncio.get_running_loop().time)
        self._next_check_ns = 0
        self._parts = 0
        self._noted_at = -1
        registry = runtime.metrics.registry
        self._metrics = QuotaMetrics(registry)
        runtime.metrics.texts.append(self._metrics.page)
        self._charged = Counter("koord_quota_pods_charged", "Pods charged to their quota", registry=registry)
        self._refused = Counter("koord_quota_pods_refused", "Pods that do not fit into their quota", registry=registry)
        self._late = Counter("koord_quota_late_requests", "Charge requests of decided cycles", registry=registry)

    @property
    def _state(self) -> LedgerState:
        state: LedgerState = self._runtime.state
        return state

    async def run(self) -> None:
        """Works until the service drains."""
        runtime = self._runtime
        await self._record_settings()
        await runtime.bus.handle(SUBJECT, self._inbox.receive)
        while not runtime.draining.is_set():
            read = dict(self._state.positions)
            worked = await self._catch_up()
            if pending := self._inbox.ready(read):
                await self._charge(pending)
                worked = True
            worked = await self._check() or worked
            self._runtime.counts.update(
                quotas=len(self._state.projection.lookup.quotas),
                pods=len(self._state.projection.pods),
                charge_requests=len(self._inbox),
            )
            if not worked:
                await runtime.changed(self._settings.poll_interval_s)

    async def _record_settings(self) -> None:
        """Records the settings: the scheduler predicts charges by them, and `koord get quotas` computes by them."""
        text = self._settings.text()
        digest = sha256(text.encode()).hexdigest()
        await self._append([Draft(ConfigApplied(source="environment", digest=digest, text=text))])

    async def _catch_up(self) -> bool:
        """Appends until the log is up to date with the positions read at the call; returns whether it appended."""
        state, timed, worked = self._state, self._metrics.timed, False
        while drafts := timed("UpdateQuota", lambda: structure(state, self._settings)):
            worked = await self._append(drafts)
        while True:
            is_last = len(state.pods_to_update) <= MAX_PODS
            worked = await self._append(timed("OnPodUpdate", lambda: postings(state))) or worked
            with uncollected():
                changed = timed("RefreshRuntime", lambda: runtimes(state))
            worked = await self._append(changed) or worked
            if is_last:
                return worked

    async def _append(self, drafts: list[Draft]) -> bool:
        if drafts:
            await self._runtime.append(drafts, now_ns=self._runtime.now_ns())
        return bool(drafts)

    async def _charge(self, pending: list[PendingCharge]) -> None:
        """Decides requests in one append, then responds to each."""
        requests = [each.request for each in pending]
        rules = self._settings.admission()
        drafts, responses = self._metrics.timed("ReservePod", lambda: charge(self._state, requests, rules))
        failpoints.hit("quota.before-charge")
        if not await self._append(drafts):
            await self._runtime.check_lock()
        failpoints.hit("quota.charged-before-answer")
        for each, response in zip(pending, responses, strict=True):
            self._charged.inc(len(response.charged))
            self._refused.inc(len(response.refused))
            self._late.inc(response.late)
            await self._inbox.respond(each, response, self._state.positions.get("quota", 0))
        failpoints.hit("quota.answered")

    async def _check(self) -> bool:
        """At intervals: overuse, root quotas of profiles, the status of quota objects, metrics.

        The last two in parts, between which charges are decided: one tenant may have thousands of quotas.
        """
        now_ns = self._runtime.now_ns()
        state, worked = self._state, False
        if now_ns >= self._next_check_ns:
            self._next_check_ns = now_ns + int(self._settings.poll_interval_s * SECOND)
            self._parts = PARTS
            worked = await self._append(overuse(state, self._settings, now_ns))
            worked = await self._append(profile_quotas(state, now_ns)) or worked
            worked = await self._note_objects(now_ns) or worked
        if self._parts == 0:
            return worked
        self._parts -= 1
        before = len(state.published.changed)
        with self._metrics.status_timed():
            drafts = statuses(state, now_ns)
        self._metrics.update(state)
        await asyncio.sleep(0)  # requests are received meanwhile
        if await self._append(drafts) or len(state.published.changed) < before or state.published.metrics_changed:
            return True
        self._parts = 0
        return worked

    async def _note_objects(self, now_ns: int) -> bool:
        """Writes the Kubernetes Events about quotas, once any of them has changed."""
        changes = self._state.structure_changes
        if changes == self._noted_at:
            return False
        if not await self._append(object_events(self._state, now_ns)):
            self._noted_at = changes
            return False
        return True


async def lead(runtime: Runtime) -> None:
    """Runs the ledger while this replica writes `quota`."""
    await Leader(runtime).run()


def lifespan(runtime: Runtime) -> AbstractAsyncContextManager[None]:
    """Serves upstream's debug API on every replica; one that does not lead responds with 503."""
    own: LedgerSettings = runtime.settings
    ports = Ports("KOORD_QUOTA_LEDGER_", own.listen, own.insecure_listen, own.tls_cert, own.tls_key)
    return serving(ports, lambda: runtime.state, lambda: runtime.phase == "leading")


def new_state() -> LedgerState:
    """Returns an empty State, with the settings that all replicas must share."""
    return LedgerSettings.load(MANIFEST.name, os.environ).new_state()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(*OWN, ConfigApplied, EvictionRequested, FieldsDesired, ObjectDesired, WriterStarted),
    settings=LedgerSettings,
    new_state=new_state,
    lead=lead,
    lifespan=lifespan,
    carry_forward=CARRY_FORWARD,
)
