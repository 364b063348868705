"""The descheduler's service: follows its contexts, and decides cycle after cycle."""

import asyncio
import logging

from services.descheduler.configuration.config_reload import config_drafts
from services.descheduler.configuration.migration_in_force import migration_args
from services.descheduler.configuration.plugin_kinds import BALANCE, DESCHEDULE
from services.descheduler.drain_requests import DrainRequests
from services.descheduler.framework.case_steps import next_steps
from services.descheduler.framework.close_cases import close_cases
from services.descheduler.framework.cycle import decide_cycle
from services.descheduler.migration.decide_migration import migration_drafts, unit_moves
from services.descheduler.prometheus_metrics import DeschedulerMetrics
from services.descheduler.retention_carry_forward import CARRY_FORWARD
from services.descheduler.scheduler_questions import SchedulerQuestions
from services.descheduler.service_manifest import COMPONENT, MANIFEST
from services.descheduler.settings import DeschedulerSettings, in_force
from services.descheduler.state.descheduler_state import FOLDED, DeschedulerState
from shared.domain.config_rejection import rejection_events
from shared.domain.offered_config import OfferedConfig, is_settled
from shared.events.descheduling import (
    AnomaliesObserved,
    DeschedulingCycled,
    EvictionCaseClosed,
    EvictionCaseOpened,
    EvictionStepDecided,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.migration import MIGRATION_EVENTS
from shared.kube.drain_control import SUBJECT as DRAIN
from shared.kube.instants import SECOND
from shared.runtime.config_file import ConfigFile
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)

POLL_INTERVAL_S = 1.0
"""Interval of checks for changes, when nothing else wakes the loop."""

PLUGINS = (DESCHEDULE, BALANCE)
"""Sets whose plugins choose pods; without any, there is no cycle."""


class Descheduler:
    """The descheduler while this replica is the writer of `descheduling`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._settings: DeschedulerSettings = runtime.settings
        self._began_ns = runtime.now_ns()
        self._file = ConfigFile(self._settings.config, self._settings.config_interval_s)
        self._cycled_s: float | None = None
        self._metrics = DeschedulerMetrics(runtime.metrics.registry)
        self._migrated_ns = 0
        self._drain_requests = DrainRequests(runtime)
        self._scheduler = SchedulerQuestions(runtime)

    @property
    def _state(self) -> DeschedulerState:
        state: DeschedulerState = self._runtime.state
        return state

    async def run(self) -> None:
        """Decides until the service drains."""
        runtime = self._runtime
        runtime.before_fold(lambda record: self._metrics.evicted.count(record, self._state))
        await runtime.bus.handle(DRAIN, self._drain_requests.receive)
        try:
            while not runtime.draining.is_set():
                if self._is_settled():
                    await self._configure()
                    await self._advance_cases()
                    if self._is_due():
                        await self._cycle()
                    await self._migrate()
                await self._drain_requests.answer()
                await runtime.changed(POLL_INTERVAL_S)
        finally:
            await self._scheduler.stop()

    def _is_settled(self) -> bool:
        running_ns = self._runtime.now_ns() - self._began_ns
        return is_settled(self._state, running_ns, self._settings.debounce_s)

    async def _configure(self) -> None:
        """Records a changed configuration."""
        state, now_ns = self._state, self._runtime.now_ns()
        text = await self._file.read(now_ns)
        file = None if text is None else OfferedConfig(self._file.source, text)
        if drafts := config_drafts(state, file, self._settings.decision_settings()):
            for draft in drafts:
                if isinstance(draft.event, ConfigRejected):
                    log.warning(
                        "a configuration is rejected; the last good one stays",
                        extra={"config": draft.event.source, "path": draft.event.path, "why": draft.event.reason},
                    )
            drafts += rejection_events(drafts, uid=state.config_map_uid, component=COMPONENT, now_ns=now_ns)
            await self._runtime.append(drafts, now_ns=now_ns)
            configuration = self._state.configuration
            for note in configuration.notes if configuration else ():
                log.warning(note, extra={"config": self._state.config_source})

    async def _advance_cases(self) -> None:
        """Takes the next steps of open cases, and closes those that have ended."""
        now_ns, configuration = self._runtime.now_ns(), self._state.configuration
        drafts = close_cases(self._state, now_ns)
        if configuration is not None:
            per_node = in_force(self._state.config_settings).step_pods_per_node
            drafts += next_steps(self._state, configuration, per_node)
        if drafts:
            await self._runtime.append(drafts, now_ns=now_ns, config=self._state.config_digest)
            self._metrics.closed(draft.event for draft in drafts)

    def _is_due(self) -> bool:
        """Reports whether a cycle is due: at a fixed rate from the start of one to the next; without an interval, once
        for each configuration.
        """
        state, configuration = self._state, self._state.configuration
        if configuration is None or not any(any(p.sets[k] for k in PLUGINS) for p in configuration.profiles):
            return False
        if not configuration.interval_ns:
            return state.cycled_config_seq != state.config_seq
        now_s = asyncio.get_running_loop().time()
        return self._cycled_s is None or now_s - self._cycled_s >= configuration.interval_ns / SECOND

    async def _cycle(self) -> None:
        """Decides one cycle and records it, if it has changed anything."""
        runtime, configuration = self._runtime, self._state.configuration
        assert configuration is not None, "a cycle is due"
        self._cycled_s = began_s = asyncio.get_running_loop().time()
        settings = in_force(self._state.config_settings)
        with runtime.hold():
            seen, now_ns = dict(self._state.positions), runtime.now_ns()
            plan = await self._scheduler.plan(configuration, settings, now_ns)
            self._metrics.planned(plan, asyncio.get_running_loop().time() - began_s)
            answer = await self._scheduler.destinations(plan.moves)
            drafts = decide_cycle(plan, answer, configuration, settings)
        if drafts:
            await runtime.append(drafts, now_ns=now_ns, seen=seen, config=self._state.config_digest)
            opened = [draft.event for draft in drafts if isinstance(draft.event, EvictionCaseOpened)]
            self._metrics.opened(opened)
            self._scheduler.opened(opened, now_ns)
        runtime.counts.update(
            cycle=self._state.cycle, open_cases=len(self._state.cases.open), nodes=len(self._state.cluster.nodes)
        )

    async def _migrate(self) -> None:
        """Takes the steps of migrations that are due, at most once an interval of the arbitrator."""
        configuration, now_ns = self._state.configuration, self._runtime.now_ns()
        args = None if configuration is None else migration_args(configuration)
        if args is None or 0 <= now_ns - self._migrated_ns < args.interval_ns:
            return
        self._migrated_ns = now_ns
        with self._runtime.hold():
            seen = dict(self._state.positions)
            found = await self._scheduler.destinations(unit_moves(self._state, args, now_ns))
            drafts = migration_drafts(self._state, args, now_ns, found)
        if drafts:
            await self._runtime.append(drafts, now_ns=now_ns, seen=seen)


async def lead(runtime: Runtime) -> None:
    """Decides for as long as this replica writes `descheduling`."""
    await Descheduler(runtime).run()


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(
        WriterStarted,
        ConfigApplied,
        ConfigRejected,
        DeschedulingCycled,
        AnomaliesObserved,
        EvictionCaseOpened,
        EvictionStepDecided,
        EvictionCaseClosed,
        FieldsDesired,
        ObjectDesired,
        EvictionRequested,
        *MIGRATION_EVENTS,
    ),
    settings=DeschedulerSettings,
    new_state=DeschedulerState,
    lead=lead,
    carry_forward=CARRY_FORWARD,
)
"""The descheduler."""
