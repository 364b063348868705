"""The quota ledger's shell: what was observed is booked, asks of the scheduler are answered, over-use is looked at now and then.

Source: architecture.md, Charging quota.
"""

import os
from contextlib import AbstractAsyncContextManager
from hashlib import sha256

from prometheus_client import Counter

from services.quota_ledger.charge_inbox import ChargeInbox, PendingCharge
from services.quota_ledger.decide.charge import charge
from services.quota_ledger.decide.next_events import MOST_PODS, overuse, postings, runtimes, structure
from services.quota_ledger.decide.profile_quotas import made_by_profiles
from services.quota_ledger.decide.quota_status import statuses
from services.quota_ledger.http_api.server import serving
from services.quota_ledger.manifest import MANIFEST
from services.quota_ledger.metrics import QuotaMetrics
from services.quota_ledger.settings import LedgerSettings
from services.quota_ledger.state.ledger_state import FOLDED, OWN, LedgerState
from shared.domain.quota_charge import SUBJECT
from shared.events import Draft
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, WriterStarted
from shared.kube.instants import SECOND
from shared.runtime import failpoints
from shared.runtime.gc_pause import uncollected
from shared.runtime.http_server import Ports
from shared.runtime.retention import Retention
from shared.runtime.service import Runtime, Service


class Ledger:
    """One leadership."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: LedgerSettings = runtime.settings
        self._desk = ChargeInbox(runtime)
        self._look_due_ns = 0
        registry = runtime.metrics.registry
        self._metrics = QuotaMetrics(registry)
        runtime.metrics.texts.append(self._metrics.page)
        self._charged = Counter("koord_quota_pods_charged", "Pods charged to their quota", registry=registry)
        self._refused = Counter("koord_quota_pods_refused", "Pods whose quota has no room", registry=registry)
        self._late = Counter("koord_quota_late_asks", "Asks of cycles that were over", registry=registry)

    @property
    def _state(self) -> LedgerState:
        state: LedgerState = self._runtime.state
        return state

    async def run(self) -> None:
        """Book, answer and look until the service drains."""
        runtime = self._runtime
        await self._say_settings()
        await runtime.bus.handle(SUBJECT, self._desk.asked)
        while not runtime.draining.is_set():
            read = dict(self._state.positions)
            worked = await self._book()
            if asked := self._desk.ready(read):
                await self._answer(asked)
                worked = True
            worked = await self._look() or worked
            self._runtime.counts.update(
                quotas=len(self._state.projection.names.quotas),
                pods=len(self._state.projection.pods),
                asks=len(self._desk),
            )
            if not worked:
                await runtime.changed(self._settings.poll_interval_s)

    async def _say_settings(self) -> None:
        """Record what is decided by from here on: others foresee answers by it, and `koord quota` adds up by it."""
        text = self._settings.text()
        digest = sha256(text.encode()).hexdigest()
        await self._append([Draft(ConfigApplied(source="environment", digest=digest, text=text))])

    async def _book(self) -> bool:
        """Append until the books say what the logs said when this began, whatever comes meanwhile; whether anything was appended."""
        state, worked = self._state, False
        while drafts := structure(state, self._settings):
            worked = await self._append(drafts)
        while True:
            is_all = len(state.due) <= MOST_PODS
            worked = await self._append(postings(state)) or worked
            with uncollected():
                moved = runtimes(state)
            worked = await self._append(moved) or worked
            if is_all:
                return worked

    async def _append(self, drafts: list[Draft]) -> bool:
        if drafts:
            await self._runtime.append(drafts, now_ns=self._runtime.now_ns())
        return bool(drafts)

    async def _answer(self, asked: list[PendingCharge]) -> None:
        """Charge what the asks name in one append, then answer each."""
        drafts, answers = charge(self._state, [each.ask for each in asked], self._settings.admission())
        failpoints.hit("quota.before-charge")
        if not await self._append(drafts):
            await self._runtime.check_lock()
        failpoints.hit("quota.charged-before-answer")
        for each, answer in zip(asked, answers, strict=True):
            self._charged.inc(len(answer.charged))
            self._refused.inc(len(answer.refused))
            self._late.inc(answer.late)
            await self._desk.answer(each, answer, self._state.positions.get("quota", 0))
        failpoints.hit("quota.answered")

    async def _look(self) -> bool:
        """Now and then: over-use, what objects are told of their quota's numbers, the root quotas of profiles, and what metrics show."""
        now_ns = self._runtime.now_ns()
        if now_ns < self._look_due_ns:
            return False
        self._look_due_ns = now_ns + int(self._settings.poll_interval_s * SECOND)
        state = self._state
        worked = await self._append(overuse(state, self._settings, now_ns))
        worked = await self._append(made_by_profiles(state, now_ns)) or worked
        worked = await self._append(statuses(state, now_ns)) or worked
        self._metrics.look(state)
        return worked


async def lead(runtime: Runtime) -> None:
    """Keep the books for as long as this replica writes `quota`."""
    await Ledger(runtime).run()


def beside(runtime: Runtime) -> AbstractAsyncContextManager[None]:
    """Upstream's views over HTTP, on every replica; who does not lead answers 503."""
    own: LedgerSettings = runtime.settings
    ports = Ports("KOORD_QUOTA_LEDGER_", own.listen, own.insecure_listen, own.tls_cert, own.tls_key)
    return serving(ports, lambda: runtime.state, lambda: runtime.phase == "leading")


def new_state() -> LedgerState:
    """An empty ledger, by the settings that every replica must have in common."""
    return LedgerSettings.load(MANIFEST.name, os.environ).new_state()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(*OWN, ConfigApplied, EvictionRequested, FieldsDesired, ObjectDesired, WriterStarted),
    settings=LedgerSettings,
    new_state=new_state,
    lead=lead,
    lifespan=beside,
    retention=Retention(days=36_500, carries_forward=False),
)
"""The quota ledger. Its books are sums over its whole log, which is small: it is kept."""
