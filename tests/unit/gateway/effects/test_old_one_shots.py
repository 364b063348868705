"""A binding or an eviction that was decided long ago is not carried out, whatever fold made it due again; its outcome is
what its pod shows, since an earlier gateway may have carried it out and ended before the answer.
"""

import asyncio
from typing import Any

import pytest

from cli.dev.fault_simulation import cluster_objects
from cli.dev.fault_simulation.api_transport import ApiTransport, MemoryConnections
from cli.dev.fault_simulation.memory_api import ApiServer
from cli.dev.fault_simulation.virtual_loop import Process
from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.effect_runner import EffectRunner
from services.gateway.kube_api.client import KubeApi
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from shared.events import Draft, Event
from shared.events.cluster import (
    BindFailed,
    BindRejected,
    EvictionFailed,
    NodeObserved,
    PodBound,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced
from shared.kube.instants import SECOND
from tests.support.gateway_objects import Log, kept, node, pod, state_after

KEY = f"{cluster_objects.NAMESPACE}/web-0"
SETTINGS = GatewaySettings(one_shot_max_age_s=600, timeout_s=0.2, backoff_s=0.01, backoff_max_s=0.02)


class OldIntent:
    """A pod on the API server, and an intent about it that is 601 s old and due."""

    def __init__(self, *, evicts: bool = False, age_s: int = 601, **eviction: Any) -> None:
        self.server = ApiServer(1, lambda: 0)
        self.transport = ApiTransport(self.server, 1)
        self.server.create("nodes", cluster_objects.node("n1"))
        self.uid = self.server.create("pods", cluster_objects.pod("web-0", "plain", 1))["metadata"]["uid"]
        log = Log()
        log.append("cluster", NodeObserved(node="n1", object=kept("nodes", node())))
        log.append("cluster", PodObserved(pod=KEY, pod_uid=self.uid, object=kept("pods", pod("web-0", uid=self.uid))))
        intent: Event = (
            EvictionRequested(pod=KEY, pod_uid=self.uid, reason="once", **eviction)
            if evicts
            else PodPlaced(pod=KEY, pod_uid=self.uid, node="n1", cycle=1, request={})
        )
        self.cause = log.append("scheduling", intent)
        self.age_s = age_s
        self.recorded_ns = log.contexts["scheduling"][-1].at_ns
        self.state: GatewayState = state_after(log.in_order([]))

    async def outcome(self, *, inherited: bool = False) -> Event:
        """Runs what is due; returns the outcome."""
        ended: list[Draft] = []

        async def check_lock() -> None:
            pass

        api = KubeApi(connections=MemoryConnections(self.transport, Process("gateway")), timeout_s=SETTINGS.timeout_s)
        async with api, asyncio.TaskGroup() as group:
            runner = EffectRunner(
                api,
                SETTINGS,
                DriftTracker(),
                now_ns=lambda: self.recorded_ns + self.age_s * SECOND,
                check_lock=check_lock,
                append=ended.append,
                count=lambda _intent, _outcome: None,
                group=group,
            )
            if inherited:
                runner.before_lists(self.state)
            await runner.start(self.state)
        [draft] = ended
        assert draft.cause == self.cause
        return draft.event


@pytest.mark.parametrize(("evicts", "outcome"), [(False, BindFailed), (True, EvictionFailed)])
async def test_an_old_one_shot_ends_as_failed_and_writes_nothing(evicts: bool, outcome: type[Event]) -> None:
    """Fault 04: a refold made an eviction due again that had been refused long ago."""
    old = OldIntent(evicts=evicts)
    version = old.server.version
    found = await old.outcome()
    assert isinstance(found, outcome)
    assert "601 s old" in found.reason  # type: ignore[attr-defined]
    assert old.server.version == version


@pytest.mark.parametrize(("node_of_pod", "outcome"), [("n1", PodBound), ("n2", BindRejected)])
async def test_an_old_placement_of_a_pod_that_was_bound_meanwhile_has_the_outcome_that_the_pod_shows(
    node_of_pod: str, outcome: type[Event]
) -> None:
    old = OldIntent()
    old.server.bind(KEY, old.uid, node_of_pod, {})
    assert isinstance(await old.outcome(), outcome)


async def test_an_old_eviction_of_a_pod_that_is_gone_meanwhile_counts_as_done() -> None:
    old = OldIntent(evicts=True)
    old.server.remove("pods", KEY)
    assert isinstance(await old.outcome(), PodEvicted)


async def test_an_old_intent_stays_due_while_its_pod_cannot_be_read() -> None:
    old = OldIntent()
    old.server.bind(KEY, old.uid, "n1", {})
    old.transport.up = False
    outcome = asyncio.ensure_future(old.outcome())
    await asyncio.wait([outcome], timeout=0.1)
    assert not outcome.done()
    old.transport.up = True
    assert isinstance(await outcome, PodBound)


async def test_an_intent_of_an_earlier_gateway_fails_once_no_request_of_that_can_be_executed_any_more() -> None:
    """That gateway may have ended in the middle of a request, which the server executes late."""
    old = OldIntent()
    outcome = asyncio.ensure_future(old.outcome(inherited=True))
    asyncio.get_running_loop().call_later(SETTINGS.timeout_s / 2, old.server.bind, KEY, old.uid, "n1", {})
    assert isinstance(await outcome, PodBound)


@pytest.mark.parametrize("deletes", [False, True])
async def test_an_eviction_is_not_carried_out_after_its_own_deadline(deletes: bool) -> None:
    """The job that requested it has given its place away by then."""
    old = OldIntent(evicts=True, age_s=10, deletes=deletes, deadline_ns=1)
    version = old.server.version
    found = await old.outcome()
    assert isinstance(found, EvictionFailed)
    assert found.reason == "its deadline has passed"
    assert old.server.version == version


@pytest.mark.parametrize("deletes", [False, True])
async def test_an_eviction_before_its_deadline_ends_the_pod(deletes: bool) -> None:
    old = OldIntent(evicts=True, age_s=10, deletes=deletes, deadline_ns=2**62)
    version = old.server.version
    assert isinstance(await old.outcome(), PodEvicted)
    assert old.server.version > version
