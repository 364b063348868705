"""A binding or an eviction that was decided long ago is not carried out, whatever fold made it due again."""

import asyncio
from typing import cast

import pytest

from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from shared.events import Draft, Event
from shared.events.cluster import BindFailed, EvictionFailed, NodeObserved, PodObserved
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from tests.support.gateway_objects import Log, kept, node, pod, state_after

UID = "uid-of-web-0"
PLACED = PodPlaced(pod="shop/web-0", pod_uid=UID, node="n1", cycle=1, request={})
EVICTION = EvictionRequested(pod="shop/web-0", pod_uid=UID, reason="once")


@pytest.mark.parametrize(("intent", "outcome"), [(PLACED, BindFailed), (EVICTION, EvictionFailed)])
async def test_an_old_one_shot_ends_as_failed_without_a_request(intent: Event, outcome: type[Event]) -> None:
    """Fault 04: a refold made an eviction due again that had been refused long ago."""
    log = Log()
    body = pod("web-0", uid=UID)
    log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
    log.append("cluster", PodObserved(pod="shop/web-0", pod_uid=UID, object=kept("pods", body)))
    cause = log.append("scheduling", intent)
    state = state_after(log.in_order([]))
    recorded_ns = log.contexts["scheduling"][-1].at_ns
    ended: list[Draft] = []

    async def check_lock() -> None:
        pass

    async with asyncio.TaskGroup() as group:
        runner = EffectRunner(
            cast("KubeApi", None),  # a request would raise
            GatewaySettings(one_shot_max_age_s=600),
            DriftTracker(),
            now_ns=lambda: recorded_ns + 601 * SECOND,
            check_lock=check_lock,
            append=ended.append,
            count=lambda _intent, _outcome: None,
            group=group,
        )
        await runner.start(state)
    [draft] = ended
    assert isinstance(draft.event, outcome)
    assert draft.cause == cause
    assert "601 s old" in draft.event.reason  # type: ignore[attr-defined]
