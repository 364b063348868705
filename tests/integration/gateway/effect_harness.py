"""Intents in, outcomes out: the gateway's effect_runner and fold on a real API, with a log in memory."""

import asyncio
import time
from typing import Any

from services.gateway.effects import outcomes
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.effects.intents import ObjectRef
from services.gateway.effects.write_tracker import WriteTracker
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import RESOURCES
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from services.gateway.watch.observed_changes import differences
from shared.events import Cause, Draft, Event
from shared.events.scheduling import PodPlaced, PodUnschedulable
from tests.support.gateway_objects import Log

QUICK = GatewaySettings(deadline_s=4, tries=4, backoff_s=0.02, backoff_max_s=0.1)


class EffectHarness:
    """One gateway without its watches: a test says what it has observed."""

    def __init__(self, api: KubeApi, settings: GatewaySettings = QUICK) -> None:
        self.api = api
        self.settings = settings
        self.log = Log()
        self.state = GatewayState()
        self.echoes = WriteTracker()
        self.outcomes: list[Draft] = []
        self.checks = 0
        self._upto = 0

    async def observe(self, resource: str, *keys: str) -> None:
        """Take what the API says of these objects into the log."""
        for key in keys:
            seen = await self.api.find(RESOURCES[resource], key)
            place = ObjectRef(resource, key)
            if seen:
                self.echoes.observed(self.state, place, seen, asyncio.get_running_loop().time())
            self._fold("cluster", *differences(self.state, {place: seen}))

    async def ask(self, *intents: Event, context: str = "scheduling", within_s: float = 240) -> list[Event]:
        """Append intents and carry out what is due; returns the outcomes, in the order in which they came."""
        for intent in intents:
            self._fold(context, Draft(intent))
        return await self.work(within_s)

    async def work(self, within_s: float = 240) -> list[Event]:
        """Carry out what is due until nothing is."""
        began = len(self.outcomes)
        async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
            effect_runner = EffectRunner(
                self.api,
                self.settings,
                self.echoes,
                now_ns=time.time_ns,
                check_lock=self._check_lock,
                append=self._append,
                count=lambda _intent, _outcome: None,
                group=group,
            )
            while True:
                began_any = await effect_runner.start(self.state)
                self._fold("cluster", *outcomes.superseded_outcomes(self.state, effect_runner.in_flight))
                done = [draft.cause for draft in self._folded() if draft.cause]
                effect_runner.forget(done)
                if not (began_any or effect_runner.in_flight or self.state.one_shots or self.state.desired):
                    return [draft.event for draft in self.outcomes[began:]]
                await asyncio.sleep(0.005)

    async def _check_lock(self) -> None:
        self.checks += 1

    def _append(self, draft: Draft) -> None:
        self.outcomes.append(draft)

    def _folded(self) -> list[Draft]:
        """Fold the outcomes that are new."""
        new, self._upto = self.outcomes[self._upto :], len(self.outcomes)
        self._fold("cluster", *new)
        return new

    def _fold(self, context: str, *drafts: Draft) -> None:
        for draft in drafts:
            self.log.append(context, draft)
            self.state.apply(self.log.contexts[context][-1])

    def cause(self, context: str = "scheduling") -> Cause:
        """The newest event of a context."""
        return Cause(context, len(self.log.contexts[context]))


def placed(pod: dict[str, Any], node: str) -> PodPlaced:
    """The intent that a pod goes to a node."""
    metadata = pod["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    return PodPlaced(pod=key, pod_uid=metadata["uid"], node=node, cycle=1, request={})


def unschedulable(pod: dict[str, Any], message: str = "0/1 nodes are available", **fields: Any) -> PodUnschedulable:
    """The intent that people learn why a pod waits."""
    metadata = pod["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    code = fields.pop("code", "InsufficientResource")
    return PodUnschedulable(pod=key, pod_uid=metadata["uid"], cycle=1, code=code, message=message, **fields)
