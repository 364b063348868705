"""A recorded history is decided again, bit for bit: what was decided stays explicable by the code of today.

When a decision changes on purpose: `python -m tests.unit.scheduler.golden_history --write`, and the changelog says why.
"""

import msgspec

from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle import decide
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import EVENT_TYPES, RecordedEvent
from shared.events.scheduling import CycleDecided, PodUnschedulable
from tests.unit.scheduler.golden_history import FILE, Line


class Tagged(msgspec.Struct):
    """The common part of all events."""

    type: str


def recorded() -> dict[str, list[RecordedEvent]]:
    logs: dict[str, list[RecordedEvent]] = {"cluster": [], "scheduling": []}
    for line in msgspec.json.Decoder(Line).decode_lines(FILE.read_bytes()):
        kind = EVENT_TYPES[msgspec.json.decode(line.data, type=Tagged).type]
        event = msgspec.json.decode(line.data, type=kind)
        logs[line.context].append(RecordedEvent(line.context, line.seq, event, line.at_ns, line.cause))
    return logs


def test_every_placement_of_the_golden_log_is_decided_again_bit_for_bit() -> None:
    logs = recorded()
    view = SchedulerState()
    ours = logs["scheduling"]
    assert sum(isinstance(record.event, CycleDecided) for record in ours) > 15
    assert any(isinstance(record.event, PodUnschedulable) for record in ours)
    view.apply(ours.pop(0))  # the configuration
    cache = CycleInputs(view, config_of(view).profiles)
    while ours:
        first = ours[0].event
        assert isinstance(first, CycleDecided)
        assert first.seen is not None
        assert first.now_ns is not None
        for record in logs["cluster"][view.positions.get("cluster", 0) : first.seen["cluster"]]:
            view.apply(record)
        drafts = decide(cache, first.now_ns, batch_size=5)
        again = [msgspec.structs.replace(drafts[0].event, seen=first.seen, now_ns=first.now_ns, config=first.config)]
        again += [draft.event for draft in drafts[1:]]
        assert [msgspec.json.encode(event) for event in again] == [
            msgspec.json.encode(record.event) for record in ours[: len(again)]
        ]
        for record in ours[: len(again)]:
            view.apply(record)
        del ours[: len(again)]


def test_the_golden_log_is_what_its_generator_plays() -> None:
    from tests.unit.scheduler.golden_history import lines, play

    world = play()
    assert lines([*world.logs["cluster"], *world.logs["scheduling"]]) == FILE.read_bytes()
