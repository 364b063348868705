"""A recorded decision beside its repetition, and what is printed of both."""

import msgspec

from cli.replay.command import lines
from cli.replay.compare_decisions import first_difference_of
from cli.replay.recorded_appends import Grouping
from cli.replay.replay_scheduler import SchedulerReplay
from cli.replay.run_replay import Replayed
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.intents import FieldsDesired
from shared.events.scheduling import CycleDecided, PodOutcome, PodPlaced

SEEN = {"cluster": 7, "scheduling": 2}
DECIDED = CycleDecided(cycle=3, pods=(PodOutcome(pod_uid="u", class_index=0, node="n1"),))
PLACED = PodPlaced(pod_uid="u", pod="apps/web", node="n1", cycle=3, request={"cpu": 500})
CAUSE = Cause("cluster", 5)
STATUS = FieldsDesired(resource="podgroups", name="apps/gang", fields="pod-group", patch={"status": {}})


def recorded(*events: Event) -> tuple[RecordedEvent, ...]:
    """Returns the events of one append from `scheduling/3` on; each but the first is caused by CAUSE."""
    first = msgspec.structs.replace(events[0], seen=SEEN, now_ns=11, config="c")
    return tuple(
        RecordedEvent("scheduling", 3 + number, event, 0, CAUSE if number else None)
        for number, event in enumerate((first, *events[1:]))
    )


def test_a_decision_without_a_difference_is_equal_whatever_its_append_rested_on() -> None:
    assert first_difference_of(recorded(DECIDED, PLACED), [Draft(DECIDED), Draft(PLACED, CAUSE)]) is None


def test_the_first_event_that_differs_is_named_with_its_path_and_the_inputs() -> None:
    on_another_node = msgspec.structs.replace(PLACED, node="n2")
    found = first_difference_of(recorded(DECIDED, PLACED), [Draft(DECIDED), Draft(on_another_node, CAUSE)])
    assert found is not None
    assert (found.event, found.path) == ("scheduling/4", "node")
    assert (found.recorded["node"], found.again["node"]) == ("n1", "n2")
    assert (found.seen, found.now_ns, found.config) == (SEEN, 11, "c")


def test_another_cause_an_event_too_few_and_one_too_many_are_differences() -> None:
    other = first_difference_of(recorded(DECIDED, PLACED), [Draft(DECIDED), Draft(PLACED, Cause("cluster", 6))])
    assert other is not None
    assert other.path == "cause"
    few = first_difference_of(recorded(DECIDED, PLACED), [Draft(DECIDED)])
    assert few is not None
    assert (few.event, few.again) == ("scheduling/4", None)
    many = first_difference_of(recorded(DECIDED), [Draft(DECIDED), Draft(PLACED, CAUSE)])
    assert many is not None
    assert (many.event, many.recorded) == ("scheduling/3", None)


def test_events_are_one_append_from_one_basis_to_the_next_and_the_end_of_an_earlier_one_is_left_out() -> None:
    first, second = recorded(DECIDED, PLACED, STATUS), recorded(DECIDED)
    grouping = Grouping()
    found = [*grouping.add(first[1:]), *grouping.add(first[:2]), *grouping.add((first[2], *second)), *grouping.rest()]
    assert [each.records for each in found] == [first, second]
    assert found[0].seen == SEEN


def test_a_cycle_of_another_scheduler_is_not_repeated() -> None:
    replay, grouping = SchedulerReplay(), Grouping()
    own, other = recorded(DECIDED), recorded(msgspec.structs.replace(DECIDED, by="extender"))
    found = [*grouping.add((*own, *other, *recorded(STATUS))), *grouping.rest()]
    assert [replay.is_repeated(each) for each in found] == [True, False, False]


def test_a_replay_is_printed_with_the_releases_and_the_first_difference() -> None:
    difference = first_difference_of(recorded(DECIDED), [])
    found = Replayed(
        service="scheduler",
        first="2026-03-01T12:00:00.000Z",
        last="2026-03-01T14:00:00.000Z",
        decisions=1204,
        equal=1203,
        others=311,
        spans_s=7200.0,
        took_s=9.0,
        releases=("0.1.0", "0.2.0 (numba 1, numpy 2)"),
        today="0.3.0 (numba 1, numpy 3)",
        difference=difference,
    )
    text = "\n".join(lines(found))
    assert "1,203 of 1,204 decisions are equal" in text
    assert "repeated in 9.0 s: 800 times real time" in text
    assert "decided by 0.1.0, 0.2.0 (numba 1, numpy 2); repeated by 0.3.0 (numba 1, numpy 3)" in text
    assert "first difference: scheduling/3" in text
    assert '"cluster": 7' in text
