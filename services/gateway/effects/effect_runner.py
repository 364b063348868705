"""Carries out what is due: many effects at once, those of one object in order, each until it has an outcome.

The carrier remembers only what is under way. What is due is in the State, so that after a restart, on this replica or
another, the same intents are due again; pod_writes.py and object_writes.py say why doing one twice is harmless.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator

import stamina

from services.gateway.effects import object_writes, outcomes, pod_writes
from services.gateway.effects.intents import Act, Intent, Level, Place, place_of
from services.gateway.effects.write_tracker import Echoes
from services.gateway.kube_api.api_errors import ApiProblem, BudgetRefuses, Busy, Forbidden
from services.gateway.kube_api.client import KubeApi
from services.gateway.rate_limit import Pace
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState, PodSeen
from shared.events import Cause, Draft, Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.runtime import failpoints
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

_UNKNOWN = PodSeen("")


class Carrier:
    """Effects under way.

    Attributes:
        taken: intents that are being carried out, or whose outcome is not appended yet.
    """

    def __init__(
        self,
        api: KubeApi,
        settings: GatewaySettings,
        echoes: Echoes,
        *,
        now_ns: Callable[[], int],
        check_lock: Callable[[], Awaitable[None]],
        ended: Callable[[Draft], None],
        counted: Callable[[Intent, Event], None],
        group: asyncio.TaskGroup,
    ) -> None:
        """Remember what to work with.

        Args:
            api: the API server.
            settings: how many at once, how fast, how long.
            echoes: what is known of versions, and hears of what was written.
            now_ns: the wall clock.
            check_lock: ends the process when another replica has taken over; runs before each try.
            ended: takes each outcome, to be appended.
            counted: hears of each outcome, for metrics.
            group: where effects run: an error that none of them expects ends all, and with it the process.
        """
        self.taken: dict[Cause, None] = {}
        self._api = api
        self._settings = settings
        self._echoes = echoes
        self._now_ns = now_ns
        self._check_held = check_lock
        self._ended = ended
        self._counted = counted
        self._group = group
        self._pace = Pace(settings.writes_per_s, burst_s=0.1)
        self._busy: dict[Place, None] = {}
        self._tasks: dict[asyncio.Task[None], bool] = {}  # task -> whether it holds one of the slots for acts
        self._acts = 0
        self._levels = 0

    async def start(self, state: GatewayState) -> bool:
        """Start what is due as far as there is room; say whether anything was started or settled.

        Acts come first, for a pod that waits for its node is waited for by someone.
        """
        batch = list(self._choose(state))
        if not batch:
            return False
        self.taken.update(dict.fromkeys(cause for cause, _ in batch))
        await self._check_held()
        for cause, intent in batch:
            outcome: Event | None
            if self._settings.shadow:
                outcome = outcomes.withheld(intent)
            else:
                outcome = None if cause in state.held else outcomes.verdict(state, intent)
            if outcome is None:
                self._begin(cause, intent, state)
            else:
                self._finish(cause, intent, outcome)
        return True

    async def settle(self, timeout_s: float) -> None:
        """Wait for what is under way, then give up on the rest: it stays due."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        await cancel_and_wait(*self._tasks)

    def release(self, causes: Iterable[Cause]) -> None:
        """Forget intents whose outcomes are in the log now."""
        for cause in causes:
            self.taken.pop(cause, None)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    # -- choosing

    def _choose(self, state: GatewayState) -> Iterator[tuple[Cause, Intent]]:
        """What may start now: acts, then levels, then those that others have overwritten or shadow mode has withheld; one of each object."""
        chosen: dict[Place, None] = {}
        room = self._settings.concurrency - self._acts
        for cause, act in state.acts.items():
            if room <= 0:
                break
            if cause not in self.taken and (first := self._first(state, cause, place_of(act), chosen)):
                yield first
                room -= 1
        room = self._settings.desired_state_concurrency - self._levels
        for cause, level in state.levels.items():
            if room <= 0:
                break
            if cause not in self.taken and (first := self._first(state, cause, place_of(level), chosen)):
                yield first
                room -= 1
        for cause, again in () if self._settings.shadow else self._again(state):
            if room <= 0:
                break
            place = place_of(again)
            if place not in self._busy and place not in chosen and place not in state.lines:
                chosen[place] = None
                yield cause, again
                room -= 1

    def _again(self, state: GatewayState) -> Iterator[tuple[Cause, Level]]:
        """Levels that have an outcome and must be written: another hand has changed what they say, or an earlier gateway withheld them."""
        for cause in self._echoes.drifted(self._now_s()):
            if cause in state.held and cause not in self.taken:
                yield cause, state.held[cause]
        for cause, (level, seq) in state.withheld.items():
            if seq < state.since and cause not in self.taken:
                yield cause, level

    def _first(
        self, state: GatewayState, cause: Cause, place: Place, chosen: dict[Place, None]
    ) -> tuple[Cause, Intent] | None:
        """The first in line at this place of those from the same context, unless something is under way there."""
        if place in self._busy or place in chosen:
            return None
        first = next(other for other in state.lines[place] if other.context == cause.context)
        if first in self.taken:  # ended, and not appended yet: what follows may rest on it
            line = [other for other in state.lines[place] if other.context == cause.context and other not in self.taken]
            first = line[0]
        chosen[place] = None
        intent: Intent = state.acts[first] if first in state.acts else state.levels[first]
        return first, intent

    # -- carrying out

    def _begin(self, cause: Cause, intent: Intent, state: GatewayState) -> None:
        place, act = place_of(intent), isinstance(intent, Act)
        self._busy[place] = None
        if act:
            self._acts += 1
        else:
            self._levels += 1
        task = self._group.create_task(self._carry(cause, intent, state))
        self._tasks[task] = act
        task.add_done_callback(self._forget)
        task.add_done_callback(lambda _task: self._busy.pop(place, None))

    def _forget(self, task: asyncio.Task[None]) -> None:
        if self._tasks.pop(task):
            self._acts -= 1
        else:
            self._levels -= 1

    def _finish(self, cause: Cause, intent: Intent, outcome: Event) -> None:
        self._counted(intent, outcome)
        self._ended(outcomes.answer(cause, intent, outcome))

    async def _carry(self, cause: Cause, intent: Intent, state: GatewayState) -> None:
        await self._pace.turn()
        try:
            try:
                outcome = await self._try(cause, intent, state)
            except (Busy, BudgetRefuses) as error:
                log.info("the API server is asked again", extra={"intent": str(cause), "error": str(error)})
                outcome = await self._insist(cause, intent, state)
        except (Busy, BudgetRefuses) as error:
            log.warning("gave up on an intent", extra={"intent": str(cause), "error": str(error)})
            outcome = outcomes.failed(intent, str(error))
        except Forbidden as error:
            log.warning("permission is missing", extra={"intent": str(cause), "rule": error.rule, "error": str(error)})
            outcome = outcomes.not_allowed(intent, error.rule)
        failpoints.hit("gateway.after-api-answer")
        self._finish(cause, intent, outcome)

    async def _insist(self, cause: Cause, intent: Intent, state: GatewayState) -> Event:
        """Try again with growing pauses, within the deadline."""
        settings = self._settings
        async for attempt in stamina.retry_context(
            on=_pause,
            attempts=max(1, settings.tries - 1),
            timeout=settings.deadline_s,
            wait_initial=settings.backoff_s,
            wait_max=settings.backoff_max_s,
            wait_jitter=settings.backoff_s,
        ):
            with attempt:
                if attempt.num == 1:
                    await asyncio.sleep(settings.backoff_s)
                await self._check_held()
                return await self._try(cause, intent, state)
        raise AssertionError("the retry ends with an outcome or an error")

    async def _try(self, cause: Cause, intent: Intent, state: GatewayState) -> Event:
        api = self._api
        match intent:
            case PodPlaced():
                return await pod_writes.bind(api, intent)
            case EvictionRequested():
                return await pod_writes.evict(api, intent)
            case PodUnschedulable():
                pod = state.pods.get(intent.pod_uid, _UNKNOWN)
                outcome = await pod_writes.report_unschedulable(api, intent, pod, now_ns=self._now_ns())
                await self._tell(intent, pod)
                return outcome
            case FieldsDesired():
                version = self._echoes.version(place_of(intent))
                outcome, seen = await object_writes.write_fields(api, intent, version)
            case ObjectDesired():
                place = place_of(intent)
                known = state.known.get(place.resource, {}).get(place.key)
                version, uid = self._echoes.version(place), known.uid if known else ""
                outcome, seen = await object_writes.write_object(api, intent, version, uid)
        if seen is not None:
            self._echoes.wrote(cause, intent, seen, self._now_s())
        return outcome

    async def _tell(self, intent: PodUnschedulable, pod: PodSeen) -> None:
        try:
            await pod_writes.tell_unschedulable(self._api, intent, pod, now_ns=self._now_ns())
        except ApiProblem as error:
            log.warning("no Kubernetes Event was recorded", extra={"pod": intent.pod, "error": str(error)})


def _pause(error: Exception) -> bool | float:
    """Whether to try again: not after another error than Busy; later if the server asks for that."""
    if isinstance(error, Busy) and error.retry_after_s:
        return error.retry_after_s
    return isinstance(error, Busy | BudgetRefuses)
