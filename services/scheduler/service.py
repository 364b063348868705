"""The scheduler's shell: waits for a change or for the end of a backoff, decides a cycle, charges it, appends it.

`cycle/` decides, on the State that `state/` folds. Source: architecture.md, "Scheduling cycles".
"""

import asyncio
import logging

from services.scheduler.configuration import config_drafts
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.explain.answer_schedule_explanations import explanation_drafts
from services.scheduler.extender_server.extender_service import ExtenderService
from services.scheduler.extender_server.http_api import serving
from services.scheduler.extender_server.unit_moves_answers import UnitMovesAnswers
from services.scheduler.gangs.delayed_pod_group_status_writes import StatusesAfterBindings
from services.scheduler.gangs.evict_rest_of_gang import gang_eviction_drafts
from services.scheduler.gangs.held_back_conditions import HeldBackConditions
from services.scheduler.gangs.network_topology_status import network_topology_drafts
from services.scheduler.gangs.pod_group_status import pod_group_drafts
from services.scheduler.prepared_inputs import Prepared, is_current, prepare
from services.scheduler.quota.charge_client import ChargeClient
from services.scheduler.reservations.life_cycle import life_cycle_drafts
from services.scheduler.retention_carry_forward import CARRY_FORWARD
from services.scheduler.service_manifest import MANIFEST
from services.scheduler.settings import SchedulerSettings
from services.scheduler.shadow.follow import Shadow
from services.scheduler.state.scheduler_state import FOLDED, SchedulerState
from services.scheduler.state.watched_api_resources import NETWORK_TOPOLOGIES, RESERVATIONS
from shared.domain.config_rejection import rejection_events
from shared.domain.move_destinations import SUBJECT as DESTINATIONS
from shared.domain.moves_for_waiting_unit import SUBJECT as UNIT_MOVES
from shared.domain.offered_config import OfferedConfig
from shared.events import Draft
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import ConfigApplied, ConfigRejected, WriterStarted
from shared.events.scheduling import (
    CycleDecided,
    GangEvictionDecided,
    GangPlaced,
    PlacementCompared,
    PlacementReleased,
    PlacementReserved,
    PodNominated,
    PodPlaced,
    PodUnschedulable,
    ReservationUnschedulable,
    UnitStartPlanned,
)
from shared.kube.instants import SECOND
from shared.runtime.config_file import ConfigFile
from shared.runtime.garbage_collection import uncollected
from shared.runtime.service import Runtime, Service

log = logging.getLogger(__name__)

COMPONENT = "koordstream/scheduler"
"""Reporter of the Kubernetes Events about its ConfigMap."""

LONGEST_WAIT_S = 5.0
LONGEST_PAUSE_S = 0.25

EXPLANATIONS_INTERVAL_S = 1.0
"""Between two evaluations of the ScheduleExplanation objects: each takes all nodes."""

SETTLED_AT_ONCE = 2000
"""Names that the cache reads before other tasks of the process run: some 60 ms."""

STANDBY_SETTLES_INTERVAL_S = 0.2


async def stand_by(runtime: Runtime) -> None:
    """Keeps a cache up to date, so that a takeover does not begin with every pod."""
    while True:
        view: SchedulerState = runtime.state
        prepared: Prepared | None = runtime.prepared
        if not is_current(prepared, view) and view.config_digest:  # without one no replica has led yet
            prepared = runtime.prepared = prepare(view)
        if prepared is not None:
            await _settle(prepared.cache)
        await asyncio.sleep(STANDBY_SETTLES_INTERVAL_S)
        await runtime.changed()


async def _settle(cache: CycleInputs) -> None:
    """Brings a cache up to date, a step at a time."""
    while True:
        with uncollected():
            if cache.settle(SETTLED_AT_ONCE):
                return
        await asyncio.sleep(0)


async def lead(runtime: Runtime) -> None:
    """Decides cycle after cycle while this replica is the writer of `scheduling`."""
    settings: SchedulerSettings = runtime.settings
    view: SchedulerState = runtime.state
    extender: ExtenderService = runtime.resources
    shadow = Shadow(view)
    runtime.before_fold(shadow.look if settings.shadow_scheduler else None)
    charge_client = extender.charge_client = ChargeClient(runtime, settings.quota_timeout_s)
    recorded_settings = settings.decision_settings().recorded()
    prepared: Prepared | None = runtime.prepared
    file = ConfigFile(settings.config, settings.config_interval_s)
    await _answer_descheduler(runtime, extender)
    explained_ns, statuses, held_back = 0, StatusesAfterBindings(), HeldBackConditions()
    while not runtime.draining.is_set():
        now_ns = runtime.now_ns()
        text = await file.read(now_ns)
        offered = None if text is None else OfferedConfig(file.source, text)
        if drafts := config_drafts(view, offered, recorded_settings):
            visible = rejection_events(drafts, uid=view.config_map_uid, component=COMPONENT, now_ns=now_ns)
            await runtime.append([*drafts, *visible], now_ns=now_ns)
            continue
        if not is_current(prepared, view):
            shadow.use_cache(None)
            prepared = prepare(view)
        cache = prepared.cache
        await _settle(cache)
        extender.lead_with(cache, prepared.config_digest, prepared.settings.extender_profile)
        async with extender.turn:
            # The State stays at `seen` while the ledger responds: what is decided after the response rests on the same
            # inputs, and neither records that arrive nor requests over HTTP, which settle the cache, change them.
            with runtime.hold():
                seen, now_ns = dict(view.positions), runtime.now_ns()
                plan = plan_cycle(cache, now_ns, prepared.settings.batch_size)
                plan = await charge_client.charge(plan, cache, seen)
                drafts = drafts_of(plan)
                shadow.use_cache(cache, prepared.config_digest, prepared.settings.shadow_scheduler)
                drafts += shadow.take()
                # A clock may be set back, so that the next time lies far ahead.
                if not explained_ns <= now_ns < explained_ns + int(EXPLANATIONS_INTERVAL_S * SECOND):
                    drafts += _status_drafts(cache, statuses, held_back, now_ns)
                    explained_ns = now_ns
            if drafts:
                await runtime.append(drafts, now_ns=now_ns, seen=seen, config=prepared.config_digest)
        spent_s = (runtime.now_ns() - now_ns) / SECOND
        if drafts:
            await asyncio.sleep(min(max(settings.cycle_interval_s - spent_s, 0.0), settings.cycle_interval_s))
            # The ledger's response may overtake its events; without them the next cycle would try what they refuse.
            await runtime.follower.caught_up({"quota": plan.charged_at})
            continue
        # Reports never stop, and each may let a pod be tried that waits for less load: cycles in vain take half of a
        # core at most.
        await asyncio.sleep(min(max(spent_s, 0.0), LONGEST_PAUSE_S))
        await runtime.changed(_wait_s(cache, statuses, held_back, runtime.now_ns()))
    extender.cache = None
    runtime.before_fold(None)
    while drafts := shadow.take():
        await runtime.append(drafts, now_ns=runtime.now_ns())


async def _answer_descheduler(runtime: Runtime, extender: ExtenderService) -> None:
    await runtime.bus.handle(DESTINATIONS, extender.answer_moves)
    await runtime.bus.handle(UNIT_MOVES, UnitMovesAnswers(extender).answer)


def _status_drafts(
    cache: CycleInputs, statuses: StatusesAfterBindings, held_back: HeldBackConditions, now_ns: int
) -> tuple[Draft, ...]:
    """Returns what ScheduleExplanations, Reservations, PodGroups and the ClusterNetworkTopology have to show or to become,
    the conditions of pods that no cycle tries, and the evictions of gangs that cannot go on.
    """
    pod_groups: tuple[Draft, ...] = ()
    if cache.groupings:
        pod_groups = pod_group_drafts(cache.view, statuses.take(cache.view, cache.changed_gangs, now_ns), now_ns)
        pod_groups += gang_eviction_drafts(cache, cache.changed_gangs, now_ns)
        pod_groups += held_back.take(cache, cache.changed_gangs, now_ns)
    cache.changed_gangs.clear()
    topology = network_topology_drafts(cache) if cache.groupings else ()
    return (*explanation_drafts(cache, now_ns), *life_cycle_drafts(cache, now_ns), *pod_groups, *topology)


def _wait_s(cache: CycleInputs, statuses: StatusesAfterBindings, held_back: HeldBackConditions, now_ns: int) -> float:
    """Seconds until the next backoff ends, at most LONGEST_WAIT_S; less where objects wait for a status."""
    next_ns = cache.next_at_ns()
    objects = cache.view.objects
    waiting = cache.changed_gangs or statuses or held_back
    has_objects = cache.view.explanations or objects.get(RESERVATIONS) or objects.get(NETWORK_TOPOLOGIES) or waiting
    longest_s = EXPLANATIONS_INTERVAL_S if has_objects else LONGEST_WAIT_S
    if next_ns is None:
        return longest_s
    return min(max((next_ns - now_ns) / SECOND, 0.001), longest_s)


SERVICE = Service(
    manifest=MANIFEST,
    follows=FOLDED,
    emits=(
        WriterStarted,
        FieldsDesired,
        ObjectDesired,
        CycleDecided,
        GangPlaced,
        PodPlaced,
        PodNominated,
        GangEvictionDecided,
        PodUnschedulable,
        PlacementCompared,
        PlacementReserved,
        PlacementReleased,
        ReservationUnschedulable,
        UnitStartPlanned,
        EvictionRequested,
        ConfigApplied,
        ConfigRejected,
    ),
    settings=SchedulerSettings,
    new_state=SchedulerState,
    lead=lead,
    stand_by=stand_by,
    carry_forward=CARRY_FORWARD,
    lifespan=serving,
)
