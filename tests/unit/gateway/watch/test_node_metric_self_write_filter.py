"""Our own write of a NodeMetric's status is not recorded again; a change by another client is."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.effects.drift_tracker import DriftTracker
from services.gateway.effects.outcome_events import applied
from services.gateway.kube_api.resources import NODE_METRICS
from services.gateway.watch.incomplete_list_guard import ShortListLimits, ShortLists
from services.gateway.watch.observation_buffer import ObservationBuffer
from shared.domain.node_metric_status import desired_status
from shared.events import Cause, Draft, Event
from shared.events.cluster import DesiredStateRejected, NodeMetricDeleted, NodeMetricObserved
from shared.events.intents import FieldsDesired
from shared.events.metrics import AGGREGATIONS, ClassReported, NodeReported, PodReported, Usage, WindowUsage
from tests.support.gateway_objects import Log, seen, state_after
from tests.support.hypothesis_examples import examples

RESOURCE = NODE_METRICS.name
START_NS = 1_780_000_000 * 10**9


def desired(number: int) -> FieldsDesired:
    """Returns the desired status that the gateway makes of a report."""
    report = NodeReported(
        node="n1",
        at_ns=START_NS + number * 60 * 10**9,
        interval_s=60,
        aggregate_s=300,
        usage=Usage(1_000 + number, 2**30),
        system=Usage(None, 2**20),
        windows=(WindowUsage(300, tuple(Usage(of, 2) for of in range(len(AGGREGATIONS)))),),
        pods=(ClassReported("koord-batch", "BE", (PodReported("d/p", 5, 6),)),),
    )
    return desired_status(report)


class World:
    """A server with one NodeMetric, the log of a gateway that watches it, and its buffer."""

    def __init__(self) -> None:
        self.log = Log()
        self.buffer = ObservationBuffer(
            [],
            lambda: state_after(self.log.in_order([])),
            DriftTracker(),
            lambda: None,
            lambda _: None,
            ShortLists(ShortListLimits(100, 1)),
        )
        self.version = 1
        self.body: dict[str, Any] = {"metadata": {"name": "n1", "uid": "u1"}}

    def change(self, patch: dict[str, Any]) -> None:
        """Merges a patch into the object, as any client may."""
        self.version += 1
        self.body = _merged(self.body, patch)
        self.body["metadata"]["resourceVersion"] = str(self.version)

    def watch(self) -> None:
        """Delivers the object by the watch."""

        async def deliver() -> None:  # the buffer reads the loop's clock
            self.buffer.observed(RESOURCE, [seen(RESOURCE, self.body)])

        asyncio.run(deliver())

    def append(self) -> list[Event]:
        """Appends the buffered observations."""
        drafts = self.buffer.take()
        self.log.append("cluster", *drafts)
        return [draft.event for draft in drafts]

    def seen_and_appended(self) -> list[Event]:
        self.watch()
        return self.append()

    def decide(self, number: int) -> tuple[FieldsDesired, Cause]:
        decided = desired(number)
        return decided, self.log.append("metrics-0", decided)

    def write(self, number: int) -> None:
        """Appends a desired status, writes it, and appends its outcome."""
        self.apply_desired(desired(number))

    def apply_desired(self, decided: FieldsDesired) -> None:
        cause = self.log.append("metrics-0", decided)
        self.change(decided.patch)
        self.log.append("cluster", Draft(applied(decided), cause))


@pytest.fixture
def world() -> World:
    made = World()
    assert len(made.seen_and_appended()) == 1
    return made


def test_own_status_writes_are_not_recorded(world: World) -> None:
    for number in range(3):
        world.write(number)
        assert world.seen_and_appended() == []


def test_an_own_write_for_a_node_without_pods_is_not_recorded(world: World) -> None:
    report = NodeReported(node="n1", at_ns=START_NS, interval_s=60, aggregate_s=300)
    world.apply_desired(desired_status(report))
    assert world.seen_and_appended() == []


def test_an_own_write_observed_before_its_outcome_is_not_recorded(world: World) -> None:
    decided, cause = world.decide(1)
    world.change(decided.patch)
    assert world.seen_and_appended() == []
    world.log.append("cluster", Draft(applied(decided), cause))
    assert world.seen_and_appended() == []


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 5}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"status": {"updateTime": "2026-06-01T00:00:00Z"}},
        {"status": {"podsMetric": []}},
        {"status": {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "7"}}}}},
        {"status": {"prodReclaimableMetric": {"resource": {"resources": {"cpu": "2"}}}}},
    ],
)
def test_a_change_by_another_client_is_recorded(world: World, change: dict[str, Any]) -> None:
    world.write(1)
    assert world.seen_and_appended() == []
    world.change(change)
    (event,) = world.seen_and_appended()
    assert isinstance(event, NodeMetricObserved)
    assert event.object == seen(RESOURCE, world.body).object


def test_a_change_observed_together_with_our_own_write_is_recorded(world: World) -> None:
    world.write(1)
    world.seen_and_appended()
    world.change({"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 5}}})
    world.watch()
    world.write(2)  # the watch delivers our write before the change was appended
    (event,) = world.seen_and_appended()
    assert event == NodeMetricObserved(node="n1", object=seen(RESOURCE, world.body).object)  # type: ignore[arg-type]
    world.write(3)
    assert world.seen_and_appended() == []


def test_a_recreated_object_is_recorded(world: World) -> None:
    world.write(1)
    world.seen_and_appended()
    world.body["metadata"]["uid"] = "u2"
    world.change({})
    assert [type(event) for event in world.seen_and_appended()] == [NodeMetricDeleted, NodeMetricObserved]


def test_an_object_deleted_and_created_again_is_recorded(world: World) -> None:
    world.write(1)
    world.seen_and_appended()
    world.buffer.deleted(RESOURCE, "n1")
    assert [type(event) for event in world.append()] == [NodeMetricDeleted]
    assert [type(event) for event in world.seen_and_appended()] == [NodeMetricObserved]


def test_a_rejected_desired_state_filters_nothing(world: World) -> None:
    decided, cause = world.decide(1)
    world.log.append("cluster", Draft(DesiredStateRejected(resource=RESOURCE, name="n1", reason="no"), cause))
    world.change(decided.patch)
    assert [type(event) for event in world.seen_and_appended()] == [NodeMetricObserved]


def test_after_a_restart_each_is_recorded_once_more(world: World) -> None:
    world.write(1)
    world.seen_and_appended()
    world.buffer = ObservationBuffer(
        [],
        lambda: state_after(world.log.in_order([])),
        DriftTracker(),
        lambda: None,
        lambda _: None,
        ShortLists(ShortListLimits(100, 1)),
    )
    assert len(world.seen_and_appended()) == 1
    world.write(2)
    assert world.seen_and_appended() == []


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(["write", "label", "spec", "status", "watch", "append"]), max_size=12))
def test_the_log_and_the_desired_states_always_yield_the_object(steps: list[str]) -> None:
    world = World()
    for number, step in enumerate([*steps, "watch", "append"]):
        match step:
            case "write":
                world.write(number)
            case "label":
                world.change({"metadata": {"labels": {"n": str(number)}}})
            case "spec":
                world.change({"spec": {"metricCollectPolicy": {"reportIntervalSeconds": number + 1}}})
            case "status":
                world.change({"status": {"updateTime": f"2026-06-01T00:00:{number:02}Z"}})
            case "watch":
                world.watch()
            case _:
                world.append()
    observed = [r.event.object for r in world.log.contexts["cluster"] if isinstance(r.event, NodeMetricObserved)]
    recorded = msgspec.to_builtins(observed[-1])
    decided = [record.event for record in world.log.contexts.get("metrics-0", [])]
    now = msgspec.to_builtins(seen(RESOURCE, world.body).object)
    newest = decided[-1].patch if decided and isinstance(decided[-1], FieldsDesired) else {}
    assert now in (recorded, msgspec.to_builtins(_as_kept(_merged(recorded, newest))))


def _as_kept(body: dict[str, Any]) -> Any:
    return seen(RESOURCE, body).object


def _merged(body: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(body) if isinstance(body, dict) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), part)
    return result
