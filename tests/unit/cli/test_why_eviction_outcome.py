"""The outcome of an eviction, in words."""

import pytest

from cli.scheduling.why_eviction import explained
from shared.events import Cause, RecordedEvent
from shared.events.cluster import PodEvicted
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
