"""Runs due effects: many at once, those of one object in order, each until it has an outcome.

Memory holds only the effects in flight. Due intents are in the State, so after a restart, on this replica or another,
the same intents are due again; pod_writes.py and desired_state_writes.py state why running an effect twice is harmless.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

import stamina

from services.gateway.effects import field_and_object_writes, outcome_events, outcomes_without_api_request, pod_writes
from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.intent_types import DesiredState, Intent, ObjectRef, OneShot, object_ref
from services.gateway.effects.read_back_confirmations import Confirmations
from services.gateway.effects.scheduled_event_after_binding import ScheduledEvents
from services.gateway.effects.spend_budget_or_pause_eviction import EvictionPauses, limits_of
from services.gateway.known_objects import ObservedPod
from services.gateway.kube_api.api_errors import ApiError, BlockedByBudget, Busy, Forbidden, Unconfirmed
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from shared.events import Cause, Draft, Event
from shared.events.cluster import EvictionPaused, PodBound
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import SECOND
from shared.runtime import failpoints
from shared.runtime.rate_limit import RateLimit
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

_UNKNOWN = ObservedPod(b"")


class EffectRunner:
    """Effects in flight.

    Attributes:
        in_flight: intents that are being carried out, or whose outcome is not appended yet.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: GatewaySettings,
        drift_tracker: DriftTracker,
        *,
        now_ns: Callable[[], int],
        check_lock: Callable[[], Awaitable[None]],
        append: Callable[[Draft], None],
        count: Callable[[Intent, Event], None],
        group: asyncio.TaskGroup,
    ) -> None:
        """Starts with nothing in flight.

        Args:
            api: the API server.
            settings: limits of concurrency, rate and duration.
            drift_tracker: source of known versions, and receiver of the objects that writes return.
            now_ns: the wall clock.
            check_lock: ends the process if another replica has taken over; runs before each try.
            append: receives each outcome, to be appended to the log.
            count: receives each outcome, for metrics.
            group: runs the effects: an error that none of them expects ends all, and with it the process.
        """
        self.in_flight: dict[Cause, None] = {}
        self._api = api
        self._settings = settings
        self._drift_tracker = drift_tracker
        self._now_ns = now_ns
        self._check_lock = check_lock
        self._append = append
        self._count = count
        self._group = group
        self._rate_limit = RateLimit(settings.writes_per_s, burst_s=0.1)
        self._busy: dict[ObjectRef, None] = {}
        self._confirmations = Confirmations(api, settings)
        self._pauses = EvictionPauses(limits_of(settings), append)
        self._tasks: dict[asyncio.Task[None], bool] = {}  # task -> whether it is a one-shot effect
        self._one_shots = 0
        self._desired = 0
        self._scheduled_events = ScheduledEvents(
            api, bindings_in_flight=lambda: self._one_shots > 0, now_ns=now_ns, group=group
        )

    def before_lists(self, state: GatewayState) -> None:
        """Records the one-shot intents that an earlier gateway has left due: perhaps in the middle of a request. Lists
        may show that it has evicted their pods.
        """
        self._pauses.started(state)
        self._confirmations.inherited(state.intents.one_shots)

    async def start(self, state: GatewayState) -> bool:
        """Starts due effects within the limits; returns whether any was started or ended without a request.

        One-shot effects come first: a pod that waits for its binding is more urgent than a status.
        """
        self._pauses.begin_round(state, self._now_ns())
        batch = list(self._choose(state))
        self._pauses.break_if_many(state)
        if not batch:
            return False
        self.in_flight.update(dict.fromkeys(cause for cause, _ in batch))
        await self._check_lock()
        for cause, intent in batch:
            outcome: Event | None
            if self._settings.shadow:
                outcome = outcome_events.suppressed(intent)
            else:
                # A drifted desired state has an outcome already: only the write is repeated.
                outcome = (
                    None
                    if cause in state.intents.applied
                    else outcomes_without_api_request.outcome_from_state(state, intent)
                )
            if outcome is None:
                self._run_in_task(cause, intent, state)
            else:
                self._finish(cause, intent, outcome)
        return True

    def _too_old(self, state: GatewayState, cause: Cause, intent: Intent) -> Event | None:
        """Returns the outcome of a one-shot intent that is older than its limit, unless its pod shows another one: no
        fold makes an old one due again.
        """
        age_s, limit_s = self._age_s(state, cause), self._settings.one_shot_max_age_s
        if age_s <= limit_s and not self._is_past_deadline(intent):
            return None
        log.warning("an old intent is not carried out", extra={"intent": str(cause), "age_s": round(age_s)})
        paused = state.evictions.paused.get(cause)
        waited = f", and waited: {paused.reason}" if paused else ""
        if age_s <= limit_s:
            return outcome_events.failed(intent, f"its deadline has passed{waited}")
        return outcome_events.failed(
            intent, f"it is {age_s:.0f} s old; KOORD_GATEWAY_ONE_SHOT_MAX_AGE_S is {limit_s:.0f}{waited}"
        )

    def _is_past_deadline(self, intent: Intent) -> bool:
        """Reports whether an eviction has a deadline of its own that has passed: its reason no longer holds."""
        return isinstance(intent, EvictionRequested) and 0 < intent.deadline_ns < self._now_ns()

    def _age_s(self, state: GatewayState, cause: Cause) -> float:
        """Returns the age of a one-shot intent; 0 of a desired state, which has no limit."""
        recorded_ns = state.intents.recorded_ns.get(cause)
        return (self._now_ns() - recorded_ns) / SECOND if recorded_ns is not None else 0.0

    async def drain(self, timeout_s: float) -> None:
        """Waits for effects in flight, then cancels the rest: they stay due."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        await cancel_and_wait(*self._tasks)
        await self._scheduled_events.stop()

    def appended(self, drafts: Iterable[Draft]) -> None:
        """Forgets what has been appended: intents with their outcomes, and pauses."""
        for draft in drafts:
            if draft.cause is None:
                continue
            if isinstance(draft.event, EvictionPaused):
                self._pauses.pause_appended(draft.cause)
            else:
                self.in_flight.pop(draft.cause, None)
                self._pauses.outcome_appended(draft.cause)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    # -- choice

    def _choose(self, state: GatewayState) -> Iterator[tuple[Cause, Intent]]:
        """Yields the intents that may start now, at most one of each object.

        One-shot intents come first, then desired states without an outcome, then those to write again.
        """
        chosen: dict[ObjectRef, None] = {}
        free = self._settings.concurrency - self._one_shots
        for cause, one_shot in state.intents.one_shots.items():
            if free <= 0:
                break
            if cause in self.in_flight or not (first := self._first(state, cause, object_ref(one_shot), chosen)):
                continue
            yield first
            free -= 1
        free = self._settings.desired_state_concurrency - self._desired
        for cause, desired in state.intents.desired.items():
            if free <= 0:
                break
            if cause in self.in_flight or cause in state.intents.outranked:
                continue
            if state.intents.waits_for_object(cause, desired):
                continue
            if first := self._first(state, cause, object_ref(desired), chosen):
                yield first
                free -= 1
        for cause, again in () if self._settings.shadow else self._to_rewrite(state):
            if free <= 0:
                break
            if cause in state.intents.outranked:
                continue
            ref = object_ref(again)
            waits = ref in state.intents.queues and not isinstance(again, ObjectDesired)
            if ref not in self._busy and ref not in chosen and not waits:
                chosen[ref] = None
                yield cause, again
                free -= 1

    def _must_wait(self, state: GatewayState, cause: Cause, intent: Intent) -> bool:
        """Reports whether an eviction waits for budget; one that needs no request does not."""
        if self._settings.shadow or not isinstance(intent, EvictionRequested):
            return False
        if self._pauses.is_paused(state, cause):
            return True
        if outcomes_without_api_request.outcome_from_state(state, intent) is not None:
            return False
        if self._age_s(state, cause) > self._settings.one_shot_max_age_s or self._is_past_deadline(intent):
            return False
        return self._pauses.must_wait(state, cause, intent)

    def _to_rewrite(self, state: GatewayState) -> Iterator[tuple[Cause, DesiredState]]:
        """Yields desired states with an outcome that must be written: after drift, shadow mode, or when given up."""
        for cause in self._drift_tracker.drifted(self._now_s()):
            if cause in state.intents.applied and cause not in self.in_flight:
                yield cause, state.intents.applied[cause]
        for cause, (desired, seq) in state.intents.suppressed.items():
            if seq < state.started_seq and cause not in self.in_flight:
                yield cause, desired
        for cause in self._drift_tracker.to_retry(state, self._now_s()):
            if cause not in self.in_flight:
                yield cause, state.intents.given_up[cause]

    def _first(
        self, state: GatewayState, cause: Cause, ref: ObjectRef, chosen: dict[ObjectRef, None]
    ) -> tuple[Cause, Intent] | None:
        """Returns the first queued intent of the object from the same context, unless the object is busy.

        None also for an eviction that waits for budget: it holds up what its context decided about the pod after it.
        """
        if ref in self._busy or ref in chosen:
            return None
        # An effect that has ended stays in the queue until its outcome is appended; the next one may start before that.
        first = next(
            other
            for other in state.intents.queues[ref]
            if other.context == cause.context and other not in self.in_flight and other not in state.intents.outranked
        )
        intent: Intent = (
            state.intents.one_shots[first] if first in state.intents.one_shots else state.intents.desired[first]
        )
        if self._must_wait(state, first, intent):
            return None
        chosen[ref] = None
        return first, intent

    # -- execution

    def _run_in_task(self, cause: Cause, intent: Intent, state: GatewayState) -> None:
        ref, one_shot = object_ref(intent), isinstance(intent, OneShot)
        self._busy[ref] = None
        if one_shot:
            self._one_shots += 1
        else:
            self._desired += 1
        task = self._group.create_task(self._run(cause, intent, state))
        self._tasks[task] = one_shot
        task.add_done_callback(self._task_ended)
        task.add_done_callback(lambda _task: self._busy.pop(ref, None))

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if self._tasks.pop(task):
            self._one_shots -= 1
        else:
            self._desired -= 1

    def _finish(self, cause: Cause, intent: Intent, outcome: Event) -> None:
        outcome = self._pauses.outcome(cause, outcome)
        self._count(intent, outcome)
        self._append(outcome_events.outcome_draft(cause, intent, outcome))

    async def _run(self, cause: Cause, intent: Intent, state: GatewayState) -> None:
        was_given_up = cause in state.intents.given_up
        await self._rate_limit.wait()
        try:
            try:
                outcome = self._too_old(state, cause, intent) or await self._try(cause, intent, state)
            except (Busy, BlockedByBudget) as error:
                if was_given_up:
                    raise
                log.info("a write is retried", extra={"intent": str(cause), "error": str(error)})
                outcome = await self._retry(cause, intent, state)
        except (Busy, BlockedByBudget, Forbidden) as error:
            if not isinstance(intent, OneShot):
                self._drift_tracker.not_written(cause, self._now_s())
            if was_given_up:
                # The log has such an outcome already. It is written again after a pause.
                log.info("a desired state is still not written", extra={"intent": str(cause), "error": str(error)})
                del self.in_flight[cause]
                return
            outcome = _outcome_of(cause, intent, error)
        if isinstance(intent, OneShot):
            outcome = await self._confirmations.outcome(cause, intent, state, outcome)
        failpoints.hit("gateway.after-api-answer")
        self._finish(cause, intent, outcome)
        if isinstance(intent, PodPlaced) and isinstance(outcome, PodBound) and self._settings.scheduled_events:
            self._scheduled_events.add(intent, (state.pod(intent.pod, intent.pod_uid) or _UNKNOWN).scheduler)

    async def _retry(self, cause: Cause, intent: Intent, state: GatewayState) -> Event:
        """Repeats the write with growing pauses, within the deadline, until a newer desired state replaces it."""
        settings = self._settings
        async for attempt in stamina.retry_context(
            on=_retry_pause,
            attempts=max(1, settings.tries - 1),
            timeout=settings.deadline_s,
            wait_initial=settings.backoff_s,
            wait_max=settings.backoff_max_s,
            wait_jitter=settings.backoff_s,
        ):
            with attempt:
                if attempt.num == 1:
                    await asyncio.sleep(settings.backoff_s)
                await self._check_lock()
                if not isinstance(intent, OneShot) and cause in state.intents.superseded:
                    return outcome_events.superseded(intent)
                return await self._try(cause, intent, state)
        raise AssertionError("the retry ends with an outcome or an error")

    async def _try(self, cause: Cause, intent: Intent, state: GatewayState) -> Event:
        api = self._api
        match intent:
            case PodPlaced() | EvictionRequested():
                try:
                    return await pod_writes.carry_out(api, intent, now_ns=self._now_ns())
                except Unconfirmed:
                    self._confirmations.unanswered(cause)
                    raise
            case PodUnschedulable():
                pod = state.pod(intent.pod, intent.pod_uid) or _UNKNOWN
                version = self._drift_tracker.version(object_ref(intent), intent.pod_uid)
                outcome = await pod_writes.write_unschedulable_condition(
                    api, intent, pod, version, now_ns=self._now_ns()
                )
                await self._record_event(intent, pod)
                return outcome
            case FieldsDesired():
                version = self._drift_tracker.version(object_ref(intent), intent.uid)
                outcome, seen = await field_and_object_writes.write_fields(api, intent, version)
            case ObjectDesired():
                ref = object_ref(intent)
                known = state.known.get(ref.resource, {}).get(ref.key)
                version, uid = self._drift_tracker.version(ref), known.uid if known else ""
                outcome, seen = await field_and_object_writes.write_object(api, intent, version, uid)
        if seen is not None:
            self._drift_tracker.wrote(cause, intent, seen, self._now_s())
        return outcome

    async def _record_event(self, intent: PodUnschedulable, pod: ObservedPod) -> None:
        try:
            await pod_writes.record_unschedulable_event(self._api, intent, pod, now_ns=self._now_ns())
        except ApiError as error:
            log.warning("no Kubernetes Event was recorded", extra={"pod": intent.pod, "error": str(error)})


def _outcome_of(cause: Cause, intent: Intent, error: Busy | BlockedByBudget | Forbidden) -> Event:
    """Returns the outcome of a write that is given up for now, or, of a one-shot effect, for good."""
    if isinstance(error, Forbidden):
        log.warning("permission is missing", extra={"intent": str(cause), "rule": error.rule, "error": str(error)})
        return outcome_events.missing_permission(intent, error.rule)
    log.warning("gave up on an intent", extra={"intent": str(cause), "error": str(error)})
    return outcome_events.failed(intent, str(error))


def _retry_pause(error: Exception) -> bool | float:
    """Returns whether to retry after an error, or the pause in seconds that the server requests."""
    if isinstance(error, Busy) and error.retry_after_s:
        return error.retry_after_s
    return isinstance(error, Busy | BlockedByBudget)
