"""The outcome of an eviction, in words."""

import pytest

from cli.scheduling.why_eviction import explained
from cli.scheduling.why_eviction_case import case_lines
from cli.scheduling.why_eviction_case import explained as explained_case
from shared.events import Cause, RecordedEvent
from shared.events.cluster import PodEvicted
from shared.events.descheduling import EvictionCaseOpened, Expected, PassedOver
from shared.events.intents import EvictionRequested


@pytest.mark.parametrize(
    ("node", "without_node", "words"),
    [
        ("n1", False, "it is evicted from n1"),
        ("", True, "it is evicted"),
        ("", False, "it was gone before the eviction"),
    ],
)
def test_only_a_pod_that_was_gone_is_called_gone(node: str, without_node: bool, words: str) -> None:
    intent = EvictionRequested(pod="ns/web", pod_uid="u", reason="hot")
    outcome = PodEvicted(pod="ns/web", pod_uid="u", node=node, without_node=without_node)
    records = [
        RecordedEvent("descheduling", 72, intent, 1),
        RecordedEvent("cluster", 601, outcome, 2, Cause("descheduling", 72)),
    ]
    found = explained("ns/web", records, "")
    assert found is not None
    assert (found.state, found.steps[-1].text) == ("evicted", words)
    assert found.summary == f"{words}; the descheduler requested it: hot"


def test_a_case_shows_nodes_with_a_gain_and_each_reason_for_which_pods_stay_once() -> None:
    """A case on the simulated cluster had seventeen lines that differed by the pod alone, and gains `18.6 -> 18.6 cores`."""
    opened = EvictionCaseOpened(
        case="lownodeload-1", cycle=1, profile="p", plugin="LowNodeLoad",
        expected=(Expected("hot", "cpu", 9_000, 6_000, 7_000), Expected("warm", "cpu", 8_000, 8_000, 7_000)),
        passed_over=(PassedOver("d/a", "hot", "no owner"), PassedOver("d/b", "hot", "a gang"), PassedOver("d/c", "warm", "no owner")),
        passed_over_count=3,
    )  # fmt: skip
    _, *lines = case_lines(explained_case(RecordedEvent("descheduling", 1, opened, 0), None, []))
    assert lines == [
        "  gain      hot cpu 9 -> 6 cores",
        "  stays     2 pods: no owner: d/a on hot, d/c on warm",
        "  stays     d/b on hot: a gang",
    ]
