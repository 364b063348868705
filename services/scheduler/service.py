"""The scheduler's shell: wake when the state changed or a wait is over, decide a cycle, append it.

Source: architecture.md, "The core of a service". What is decided is in `cycle.py`, from what in `state.py`.
"""

import asyncio
import logging
from pathlib import Path
from typing import NamedTuple

from services.scheduler.cache.scheduling_cache import SchedulingCache
from services.scheduler.cycle.cycle import decide
from services.scheduler.explain.schedule_explanation import answers
from services.scheduler.extender.extender_service import ExtenderService
from services.scheduler.extender.http_api import serving
from services.scheduler.framework.config.config_reload import OfferedConfig, config_drafts
from services.scheduler.framework.config.profiles import config_of
from services.scheduler.manifest import MANIFEST
from services.scheduler.quota.charge_client import ChargeClient
from services.scheduler.quota.preemption import QuotaPreemptor
from services.scheduler.settings import SchedulerSettings
from services.scheduler.shadow.follow import Shadow
from services.scheduler.state.cluster_view import FOLDED, ClusterView
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.scheduling import CycleDecided, PlacementCompared, PodNominated, PodPlaced, PodUnschedulable
from shared.kube.instants import SECOND
from shared.runtime.gc_pause import uncollected
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 5.0
LONGEST_PAUSE_S = 0.25

QUESTIONS_INTERVAL_S = 1.0
"""How often the questions of ScheduleExplanation objects are looked at: each is judged over all nodes."""

SETTLED_AT_ONCE = 2000
"""Names the index looks at before other tasks of the process run: some 60 ms."""

STANDBY_SETTLES_INTERVAL_S = 0.2


class Ready(NamedTuple):
    """An index that a standby keeps up to date, and the configuration it was made with."""

    derived: SchedulingCache
    config_digest: str


async def stand_by(runtime: Runtime) -> None:
    """Keep an index up to date, so that a take-over does not begin with looking at every pod."""
    while True:
        view: ClusterView = runtime.state
        ready: Ready | None = runtime.prepared
        fits = ready is not None and ready.derived.view is view and ready.config_digest == view.config_digest
        if not fits and view.config_digest:  # without one nobody has led yet
            ready = runtime.prepared = Ready(_new_cache(view, runtime.settings), view.config_digest)
        if ready is not None:
            await _settle(ready.derived)
        await asyncio.sleep(STANDBY_SETTLES_INTERVAL_S)
        await runtime.changed()


async def _settle(cache: SchedulingCache) -> None:
    """Bring an index up to date, a step at a time."""
    while True:
        with uncollected():
            if cache.settle(SETTLED_AT_ONCE):
                return
        await asyncio.sleep(0)


def _new_cache(view: ClusterView, settings: SchedulerSettings) -> SchedulingCache:
    configuration = config_of(view)
    for note in configuration.notes:
        log.warning(note, extra={"config": view.config_source})
    return SchedulingCache(view, configuration.profiles, settings.shadow_scheduler)


async def lead(runtime: Runtime) -> None:
    """Decide cycle after cycle while this replica is the writer of `scheduling`."""
    settings: SchedulerSettings = runtime.settings
    view: ClusterView = runtime.state
    ready: Ready | None = runtime.prepared
    cache = ready.derived if ready is not None and ready.derived.view is view else None
    extender: ExtenderService = runtime.resources
    shadow = Shadow(view, settings.shadow_scheduler) if settings.shadow_scheduler else None
    if shadow is not None:
        runtime.before_fold(shadow.look)
    charge_client = extender.charge_client = ChargeClient(runtime, settings.quota_timeout_s)
    config_digest = ready.config_digest if ready is not None else ""
    file = ConfigFile(settings)
    questions_ns = 0
    while not runtime.draining.is_set():
        now_ns = runtime.now_ns()
        if drafts := config_drafts(view, await file.read(now_ns)):
            await runtime.append(drafts, now_ns=now_ns)
            continue
        if cache is None or view.config_digest != config_digest:
            config_digest = view.config_digest
            if shadow is not None:
                shadow.use_cache(None)
            cache = _new_cache(view, settings)
        await _settle(cache)
        extender.cache, extender.config_digest = cache, config_digest
        async with extender.turn:
            # The State stays at `seen` while the ledger responds: what is decided after the response rests on the same inputs, and
            # neither records that arrive nor requests over HTTP, which settle the cache, change them.
            with runtime.hold():
                seen, now_ns = dict(view.positions), runtime.now_ns()
                drafts = decide(cache, now_ns, settings.batch_size)
                drafts = await charge_client.charge(drafts, seen, QuotaPreemptor(cache))
                if shadow is not None:
                    shadow.use_cache(cache, config_digest)
                    drafts += shadow.take()
                # A clock may be set back, so that the next time lies far ahead.
                if not questions_ns <= now_ns < questions_ns + int(QUESTIONS_INTERVAL_S * SECOND):
                    drafts += answers(cache, now_ns)
                    questions_ns = now_ns
            if drafts:
                await runtime.append(drafts, now_ns=now_ns, seen=seen, config=config_digest)
        taken_s = (runtime.now_ns() - now_ns) / SECOND
        if drafts:
            await asyncio.sleep(min(max(settings.cycle_interval_s - taken_s, 0.0), settings.cycle_interval_s))
            continue
        # Reports never stop, and each may cure a pod that load keeps waiting: looking in vain takes half of a core at most.
        await asyncio.sleep(min(max(taken_s, 0.0), LONGEST_PAUSE_S))
        await runtime.changed(_wait_s(cache, runtime.now_ns()))
    extender.cache = None
    if shadow is not None:
        runtime.before_fold(None)
        while drafts := shadow.take():
            await runtime.append(drafts, now_ns=runtime.now_ns())


def _wait_s(cache: SchedulingCache, now_ns: int) -> float:
    """Until time alone lets a pod be tried, at most LONGEST_WAIT_S; less where questions wait."""
    next_ns = cache.queue.next_at_ns()
    longest_s = QUESTIONS_INTERVAL_S if cache.view.questions else LONGEST_WAIT_S
    if next_ns is None:
        return longest_s
    return min(max((next_ns - now_ns) / SECOND, 0.001), longest_s)


class ConfigFile:
    """The configuration file, if there is one, looked at every so often."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Of the path in the settings; none when that is empty."""
        self._path = settings.config
        self._every_ns = int(settings.config_interval_s * SECOND)
        self._read_ns = 0
        self._last: OfferedConfig | None = None

    async def read(self, now_ns: int) -> OfferedConfig | None:
        """The file as it is; as it was while it cannot be read, for one that is being replaced is gone for a moment."""
        if self._path and not self._read_ns <= now_ns < self._read_ns + self._every_ns:  # a clock may be set back
            self._read_ns = now_ns
            try:
                self._last = OfferedConfig(f"file {self._path}", await asyncio.to_thread(Path(self._path).read_text))
            except OSError as error:
                log.warning("the configuration file cannot be read", extra={"file": self._path, "error": str(error)})
        return self._last


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(
        WriterStarted,
        FieldsDesired,
        ObjectDesired,
        CycleDecided,
        PodPlaced,
        PodNominated,
        PodUnschedulable,
        PlacementCompared,
        EvictionRequested,
        ConfigApplied,
        ConfigRejected,
    ),
    settings=SchedulerSettings,
    new_state=ClusterView,
    lead=lead,
    stand_by=stand_by,
    lifespan=serving,
)
