"""The outcome of an eviction, in words."""

import pytest

from cli.node.usage_reports import AGENT, PodUse, UsageReport, usage_text
from cli.scheduling.why_eviction import explained
from cli.scheduling.why_eviction_case import case_lines
from cli.scheduling.why_eviction_case import explained as explained_case
from shared.events import Cause, RecordedEvent
from shared.events.cluster import PodEvicted
from shared.events.descheduling import Cause as CaseCause
from shared.events.descheduling import EvictionCaseOpened, Expected, PassedOver
from shared.events.intents import EvictionRequested
from shared.events.metrics import Usage


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


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("node", "cpu of its pods and system together is 9.654 of 10 cores, above 7 cores"),
        ("prod", "cpu of its prod pods together is 9.654 of 10 cores, above 7 cores"),
        ("requests", "requests cpu is 9.654 of 10 cores, above 7 cores"),
    ],
)
def test_a_cause_names_the_measure_by_which_a_node_is_hot(scope: str, words: str) -> None:
    """why node showed another cpu of the same report: that of the node as a whole."""
    cause = CaseCause("hot", scope, "cpu", 9_654, 7_000, 10_000)
    opened = EvictionCaseOpened(case="c-1", cycle=1, profile="p", plugin="LowNodeLoad", causes=(cause,))
    found = explained_case(RecordedEvent("descheduling", 7, opened, 1), None, ())
    assert found.causes == (f"hot: {words}",)


def test_a_usage_differs_from_the_sum_of_pods_where_pods_came_just_now() -> None:
    pods = (PodUse("d/web", "LS", "prod", 9_000, 2**30), PodUse("d/new", "LS", "prod", None, None))
    report = UsageReport("metrics-0/7", AGENT, 0, Usage(2_712, 2**31), Usage(654, 2**30), Usage(0, 0), 60, pods)
    assert usage_text(report) == (
        "cpu 2712m, memory 2Gi as a whole, and its pods and system together cpu 9654m, which LowNodeLoad compares, "
        "at an unknown time"
    )
    settled = report._replace(usage=Usage(9_500, 2**31))
    assert usage_text(settled) == "cpu 9500m, memory 2Gi at an unknown time"


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
