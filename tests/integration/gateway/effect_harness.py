"""Effect runner and State of the gateway on a real API, with a log in memory: intents in, outcomes out."""

import asyncio
import time
from typing import Any

from services.gateway.effects import outcomes_without_api_request
from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.effects.intent_types import ObjectRef
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import RESOURCES
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from services.gateway.watch.observed_changes import differences
from shared.events import Cause, Draft, Event
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.support.gateway_objects import Log
from tests.support.intents import anything

QUICK = GatewaySettings(timeout_s=2, deadline_s=4, tries=4, backoff_s=0.02, backoff_max_s=0.1)


class EffectHarness:
    """A gateway without watches: the test appends the observations."""

    def __init__(self, api: KubeApi, settings: GatewaySettings = QUICK) -> None:
        self.api = api
        self.settings = settings
        self.log = Log()
        self.state = GatewayState(anything)
        self.drift_tracker = DriftTracker()
        self.outcomes: list[Draft] = []
        self.checks = 0
        self._upto = 0

    async def observe(self, resource: str, *keys: str) -> None:
        """Reads these objects from the API and appends the observations."""
        for key in keys:
            seen = await self.api.find(RESOURCES[resource], key)
            place = ObjectRef(resource, key)
            if seen:
                self.drift_tracker.observed(self.state, place, seen, asyncio.get_running_loop().time())
            self._fold("cluster", *differences(self.state, {place: seen}))

    def deleted(self, resource: str, key: str) -> None:
        """Appends the observation that an object was deleted."""
        self._fold("cluster", *differences(self.state, {ObjectRef(resource, key): None}))

    async def carry_out(self, *intents: Event, context: str = "scheduling", within_s: float = 240) -> list[Event]:
        """Appends intents and runs due effects; returns the outcomes in the order of their arrival."""
        for intent in intents:
            self._fold(context, Draft(intent))
        return await self.run_due(within_s)

    async def run_due(self, within_s: float = 240, *, given_up: bool = False) -> list[Event]:
        """Runs effects until none is due, or until no desired state that was given up is left either."""
        began = len(self.outcomes)
        async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
            effect_runner = EffectRunner(
                self.api,
                self.settings,
                self.drift_tracker,
                now_ns=time.time_ns,
                check_lock=self._check_lock,
                append=self._append,
                count=lambda _intent, _outcome: None,
                group=group,
            )
            while True:
                began_any = await effect_runner.start(self.state)
                self._fold(
                    "cluster", *outcomes_without_api_request.superseded_outcomes(self.state, effect_runner.in_flight)
                )
                effect_runner.appended(self._folded())
                intents = self.state.intents
                due = intents.one_shots or intents.desired or (given_up and intents.given_up)
                if not (began_any or effect_runner.in_flight or due):
                    return [draft.event for draft in self.outcomes[began:]]
                await asyncio.sleep(0.005)

    async def _check_lock(self) -> None:
        self.checks += 1

    def _append(self, draft: Draft) -> None:
        self.outcomes.append(draft)

    def _folded(self) -> list[Draft]:
        """Folds the new outcomes."""
        new, self._upto = self.outcomes[self._upto :], len(self.outcomes)
        self._fold("cluster", *new)
        return new

    def _fold(self, context: str, *drafts: Draft) -> None:
        for draft in drafts:
            self.log.append(context, draft)
            self.state.apply(self.log.contexts[context][-1])

    def cause(self, context: str = "scheduling") -> Cause:
        """Returns the cause that names the newest event of a context."""
        return Cause(context, len(self.log.contexts[context]))


def placed(pod: dict[str, Any], node: str, *, node_lock: str = "") -> PodPlaced:
    """Returns a placement of a pod, perhaps under a lock on the node."""
    metadata = pod["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    return PodPlaced(pod=key, pod_uid=metadata["uid"], node=node, cycle=1, request={}, node_lock=node_lock)


def unschedulable(pod: dict[str, Any], message: str = "0/1 nodes are available", **fields: Any) -> PodUnschedulable:
    """Returns the intent that sets the condition of an unschedulable pod."""
    metadata = pod["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    code = fields.pop("code", "InsufficientResource")
    return PodUnschedulable(pod=key, pod_uid=metadata["uid"], cycle=1, code=code, message=message, **fields)
