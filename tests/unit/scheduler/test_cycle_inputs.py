"""A cycle is a function of its record: the State at `seen`, `now_ns`, the configuration, and the quota ledger's
response."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import plan_cycle
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.plan_events import drafts_of
from services.scheduler.framework.config.decision_settings import in_force
from services.scheduler.quota.charge_client import ChargeClient
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Event, RecordedEvent
from shared.events.intents import EvictionRequested
from shared.events.log import ConfigApplied
from shared.events.scheduling import CycleDecided, PodNominated
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod
from tests.support.scheduling_world import pod
from tests.unit.scheduler.leading import LeadingRuntime, lead_until_idle
from tests.unit.scheduler.scheduler_with_ledger import Teams, quota


def of_team(name: str, priority: int = 0, on: str = "") -> Pod:
    phase = "Running" if on else "Pending"
    return pod(name, cpu="2", memory=None, priority=priority, labels={QUOTA_NAME: "a"}, on=on, phase=phase)


def full_quota() -> Teams:
    """Three pods use up a quota of 6 cores; another of higher priority waits."""
    world = Teams(quota("a", "6", "6"))
    for each in (of_team("low", 0, "n0"), of_team("mid", 5, "n1"), of_team("old", 5, "n0"), of_team("vip", 100)):
        world.add_pod(each)
    world.read()
    return world


def evicted(events: list[Event]) -> list[str]:
    return [event.pod_uid for event in events if isinstance(event, EvictionRequested)]


def decided(world: Teams) -> list[RecordedEvent]:
    """The events of the first cycle: from its CycleDecided to the next."""
    log = world.logs["scheduling"]
    first, *more = [place for place, record in enumerate(log) if isinstance(record.event, CycleDecided)]
    return log[first : more[0] if more else None]


def decided_again(world: Teams, runtime: LeadingRuntime) -> list[Event]:
    """The cycle's events once more, from the State at the recorded positions and the recorded response."""
    cycle = decided(world)[0].event
    assert isinstance(cycle, CycleDecided)
    assert cycle.seen is not None
    assert cycle.now_ns is not None
    view = SchedulerState()
    for context, seq in sorted(cycle.seen.items()):
        for record in world.logs[context][:seq]:
            view.apply(record)
    assert view.config_digest == cycle.config

    async def request(*_: Any, **__: Any) -> bytes:
        return runtime.responses[0]

    again = SimpleNamespace(
        now_ns=lambda: 0,
        bus=SimpleNamespace(request=request),
        writer=SimpleNamespace(epoch=runtime.writer.epoch),
    )
    cache = CycleInputs(view, config_of(view).profiles)
    client = ChargeClient(again, 1.0)  # type: ignore[arg-type]  # the parts that it uses
    plan = plan_cycle(cache, cycle.now_ns, in_force(view.config_settings).batch_size)
    charged = asyncio.run(client.charge(plan, cache, dict(cycle.seen)))
    return [draft.event for draft in drafts_of(charged)]


def without_inputs(event: Event) -> Event:
    return type(event)(
        **{name: getattr(event, name) for name in event.__struct_fields__} | dict.fromkeys(("seen", "now_ns", "config"))
    )


def test_quota_preemption_rests_on_the_recorded_positions_whatever_arrives_while_the_ledger_is_awaited() -> None:
    world = full_quota()
    runtime = LeadingRuntime(world)

    def victim_goes() -> None:
        runtime.during_charge = lambda: None
        world.drop_pod("low")
        world.fold(world.logs["cluster"][-1])
        runtime.resources.query(of_team("question"))  # a request over HTTP settles the cache

    runtime.during_charge = victim_goes
    lead_until_idle(runtime)
    cycle = [record.event for record in decided(world)]
    assert isinstance(cycle[0], CycleDecided)
    assert cycle[0].seen is not None
    assert cycle[0].seen["cluster"] == len(world.logs["cluster"]) - 1, "the deletion came after the cycle's first read"
    assert [event.victims for event in cycle if isinstance(event, PodNominated)] == [("low",)]
    assert evicted(cycle) == ["low"]
    assert [without_inputs(event) for event in cycle] == [
        without_inputs(event) for event in decided_again(world, runtime)
    ]
    assert world.view.positions["cluster"] == len(world.logs["cluster"]), "the hold has ended"


def test_the_recorded_configuration_has_the_settings_that_shape_a_cycle() -> None:
    world = Teams()
    for number in range(5):
        world.add_pod(pod(f"p{number}"))
    world.read()
    runtime = LeadingRuntime(world, batch_size=3, shadow_scheduler="theirs", extender_profile="koord-scheduler")
    lead_until_idle(runtime)
    first = next(r.event for r in world.logs["scheduling"] if isinstance(r.event, ConfigApplied))
    assert first.settings == {
        "batch_size": "3",
        "shadow_scheduler": "theirs",
        "extender_profile": "koord-scheduler",
        "believes_annotations": "False",
        "by_sub_priority": "True",
        "open_ports": "",
        "feature_gates": "",
        "backfill": "False",
    }
    cycles = [r.event for r in world.logs["scheduling"] if isinstance(r.event, CycleDecided)]
    assert [(len(cycle.pods), cycle.config) for cycle in cycles] == [(3, first.digest), (2, first.digest)]
    assert [record.event for record in decided(world)][1:] == decided_again(world, runtime)[1:]


def test_another_batch_size_is_another_configuration_with_another_digest_and_is_applied_by_a_new_leader() -> None:
    world = Teams()
    for size in (3, 3, 2):
        lead_until_idle(LeadingRuntime(world, batch_size=size))
    applied = [r.event for r in world.logs["scheduling"] if isinstance(r.event, ConfigApplied)]
    assert [event.settings["batch_size"] for event in applied] == ["3", "2"]
    assert applied[0].text == applied[1].text
    assert applied[0].digest != applied[1].digest


def test_a_rejected_configuration_leaves_the_recorded_settings_in_force(tmp_path: Path) -> None:
    world = Teams()
    lead_until_idle(LeadingRuntime(world, batch_size=3))
    for number in range(5):
        world.add_pod(pod(f"p{number}"))
    world.read()
    bad = tmp_path / "scheduler.yaml"
    bad.write_text("nonsense")
    lead_until_idle(LeadingRuntime(world, batch_size=2, config=str(bad)))
    cycles = [r.event for r in world.logs["scheduling"] if isinstance(r.event, CycleDecided)]
    assert [len(cycle.pods) for cycle in cycles] == [3, 2]


def test_a_snapshot_keeps_the_recorded_settings() -> None:
    world = Teams()
    lead_until_idle(LeadingRuntime(world, batch_size=3))
    restored = SchedulerState()
    restored.restore(world.view.encode())
    assert in_force(restored.config_settings).batch_size == 3
