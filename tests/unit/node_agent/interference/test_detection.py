"""Detection over rounds of samples: marks, their end, what is learned, and restarts."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.node_agent.interference.baseline import WorkloadOnNodeType
from services.node_agent.interference.detection import Change, DetectionState, Ended, Round, Started, Stored, decide
from services.node_agent.interference.policy import Policy, policy_of
from services.node_agent.interference.suspects import PodSample
from shared.kube.slo_config import InterferenceStrategy

SECOND = 1_000_000_000
STRATEGY = InterferenceStrategy(enable=True, learn_seconds=20, sustain_seconds=10, recovery_seconds=20)
POLICY = policy_of(STRATEGY)
USUAL, SLOW, FLOOR = 500.0, 8_000.0, 1_000.0
"""Scheduling latencies, in microseconds a slice."""


class Node:
    """A node with the pod `web`, and the best-effort pod `burn` while it burns; two seconds a round."""

    def __init__(self, policy: Policy = POLICY, state: DetectionState | None = None) -> None:
        self.policy, self.state, self.now_ns = policy, state or DetectionState(), 1_000 * SECOND

    def round(self, latency: float | None, burns: float | None = None, *, web: bool = True) -> tuple[Change, ...]:
        self.now_ns += 2 * SECOND
        pods = []
        if web:
            signals = {} if latency is None else {"schedulingLatency": latency}
            pods.append(PodSample("web", "d/web", "d/ReplicaSet/web", False, signals, {"cpu": 100.0}))
        if burns is not None:
            pods.append(PodSample("burn", "d/burn", "d/Pod/burn", True, {}, {"cpu": burns}))
        self.state.fold(Round(self.now_ns, 2.0, "m5", tuple(pods)), self.policy)
        changes = decide(self.state, self.policy, self.now_ns)
        for change in changes:
            self.state.apply(change)
        return changes

    def rounds(self, count: int, latency: float | None, burns: float | None = None) -> list[Change]:
        return [change for _ in range(count) for change in self.round(latency, burns)]


def test_a_pod_that_deviates_beside_a_burner_is_marked_after_the_time_it_must_last() -> None:
    node = Node()
    assert node.rounds(20, USUAL) == []
    assert node.rounds(4, SLOW, 1900.0) == []
    [found] = node.rounds(1, SLOW, 1900.0)
    assert isinstance(found, Started)
    assert (found.uid, found.pod, found.since_ns) == ("web", "d/web", node.now_ns - 8 * SECOND)
    [deviation] = found.deviations
    assert (deviation.signal, deviation.value) == ("schedulingLatency", SLOW)
    assert deviation.baseline == pytest.approx(USUAL, rel=0.01)
    assert deviation.limit == pytest.approx(FLOOR, rel=0.01)
    assert [(each.pod, each.correlation_percent) for each in found.suspects] == [("d/burn", 100)]
    assert node.rounds(20, SLOW, 1900.0) == []  # once


def test_the_mark_ends_when_the_pod_has_been_quiet_for_long_enough() -> None:
    node = Node()
    node.rounds(20, USUAL)
    assert len(node.rounds(8, SLOW, 1900.0)) == 1
    quiet = [node.round(USUAL, 0.0) for _ in range(20)]
    [at] = [index for index, changes in enumerate(quiet) if changes]
    assert quiet[at] == (Ended("web", "d/web", "recovered"),)
    assert 10 <= (at + 1) * 2 <= 20 + 10  # recoverySeconds, behind the samples that still count
    assert node.state.stored.marks == {}


def test_a_pod_that_is_slow_without_an_active_neighbour_is_not_marked() -> None:
    node = Node()
    node.rounds(20, USUAL, 1500.0)
    assert node.rounds(30, SLOW, 1500.0) == []  # as active as before
    assert Node().rounds(60, SLOW, 1900.0) == []  # always slow: that is usual


def test_one_slow_sample_in_a_while_is_no_deviation() -> None:
    node = Node()
    node.rounds(20, USUAL)
    for _ in range(10):
        assert node.rounds(1, SLOW, 1900.0) == []
        assert node.rounds(3, USUAL, 0.0) == []


def test_below_the_floor_nothing_deviates() -> None:
    node = Node()
    node.rounds(20, 10.0)
    assert node.rounds(20, 240.0, 1900.0) == []


def test_before_enough_is_learned_nothing_deviates() -> None:
    node = Node(policy_of(msgspec.structs.replace(STRATEGY, learn_seconds=3600)))
    node.rounds(20, USUAL)
    assert node.rounds(20, SLOW, 1900.0) == []


def test_a_signal_that_is_not_counted_any_more_ends_its_deviation() -> None:
    node = Node()
    node.rounds(20, USUAL)
    node.rounds(8, SLOW, 1900.0)
    assert [type(each) for each in node.rounds(20, None, 1900.0)] == [Ended]


def test_a_change_that_stays_becomes_usual() -> None:
    policy = policy_of(msgspec.structs.replace(STRATEGY, half_life_seconds=60))
    node = Node(policy)
    node.rounds(20, USUAL)
    found = node.rounds(600, 1_500.0, 1900.0)
    assert [type(each) for each in found] == [Started, Ended]
    assert node.state.stored.baselines.of(WorkloadOnNodeType("d/ReplicaSet/web", "m5"), "schedulingLatency").mean > 700


def test_a_pod_that_is_gone_and_a_detection_that_is_switched_off_end_marks() -> None:
    for web, strategy, reason in ((False, STRATEGY, "gone"), (True, InterferenceStrategy(), "disabled")):
        node = Node()
        node.rounds(20, USUAL)
        node.rounds(8, SLOW, 1900.0)
        node.policy = policy_of(strategy)
        assert node.round(SLOW, 1900.0, web=web) == (Ended("web", "d/web", reason),)


def test_marks_and_baselines_are_kept_over_a_restart() -> None:
    node = Node()
    node.rounds(20, USUAL)
    node.rounds(8, SLOW, 1900.0)
    text = msgspec.json.encode(node.state.stored)
    again = Node(state=DetectionState(msgspec.json.decode(text, type=Stored), node.now_ns + 3600 * SECOND))
    again.now_ns = node.now_ns + 3600 * SECOND
    assert again.rounds(9, USUAL) == []  # marked still, since nobody has looked
    assert [type(each) for each in again.rounds(3, USUAL)] == [Ended]
    assert len(again.rounds(8, SLOW, 1900.0)) == 1  # without learning again


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20_000), st.one_of(st.none(), st.floats(0, 2_000)), st.booleans()), max_size=80))
def test_every_mark_begins_and_ends_once_and_the_same_rounds_lead_to_the_same_changes(
    history: list[tuple[float, float | None, bool]],
) -> None:
    def run() -> tuple[list[Change], bytes]:
        node = Node()
        found = [change for latency, burns, web in history for change in node.round(latency, burns, web=web)]
        return found, msgspec.json.encode(node.state.stored)

    changes, stored = run()
    assert run() == (changes, stored)
    for number, change in enumerate(changes):
        assert isinstance(change, Started if number % 2 == 0 else Ended)
        if isinstance(change, Started):
            assert change.suspects
            assert change.deviations
            assert all(each.value > each.limit for each in change.deviations)


def test_absent_fields_of_a_strategy_have_their_defaults() -> None:
    assert policy_of(InterferenceStrategy()) == Policy(
        False, 100, 4, 10 * SECOND, 60 * SECOND, 300, 86_400, 50, "none", 50
    )  # fmt: skip


def test_samples_that_are_spread_deviate_by_their_mean() -> None:
    """Four times the standard deviation of a single sample would be above all of them; of five samples it is not."""
    node = Node()
    for number in range(30):
        node.rounds(1, 300.0 if number % 2 else 100.0)
    changes = [
        change for value in (520.0, 560.0, 540.0, 580.0, 530.0, 550.0) for change in node.rounds(1, value, 1900.0)
    ]
    assert [type(change) for change in changes] == [Started]


def test_one_sample_far_above_the_limit_makes_no_deviation() -> None:
    node = Node()
    node.rounds(20, USUAL)
    assert [*node.rounds(1, 1000 * SLOW, 1900.0), *node.rounds(8, USUAL, 1900.0)] == []
