"""Intents of a context about a pod wait behind its eviction that waits for budget; those of other contexts go on."""

import asyncio
from typing import cast

from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from shared.events.cluster import EvictionsHeld, NodeObserved, PodObserved
from shared.events.intents import EvictionRequested, FieldsDesired
from tests.support.gateway_objects import Log, kept, node, pod, state_after

KEY, UID = "shop/web-0", "uid-of-web-0"


async def test_later_intents_of_the_context_wait_behind_a_held_eviction() -> None:
    log = Log()
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    log.append("cluster", PodObserved(pod=KEY, pod_uid=UID, object=kept("pods", pod("web-0", node="n1"))))
    log.append("cluster", EvictionsHeld(by="ops", reason="checking"))
    log.append("slo", EvictionRequested(pod=KEY, pod_uid=UID, reason="over-use"))
    patch = {"metadata": {"annotations": {"a": "b"}}}
    log.append("slo", FieldsDesired(resource="pods", name=KEY, fields="later", patch=patch))
    other = log.append("scheduling", FieldsDesired(resource="pods", name=KEY, fields="other", patch=patch))
    state = state_after(log.in_order([]))

    async def check_lock() -> None:
        pass

    async with asyncio.TaskGroup() as group:
        runner = EffectRunner(
            cast("KubeApi", None),
            GatewaySettings(),
            DriftTracker(),
            now_ns=lambda: 1,
            check_lock=check_lock,
            append=lambda _draft: None,
            count=lambda _intent, _outcome: None,
            group=group,
        )
        runner._pauses.begin_round(state, 1)
        assert [cause for cause, _ in runner._choose(state)] == [other]
