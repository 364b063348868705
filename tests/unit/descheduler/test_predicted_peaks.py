"""LowNodeLoad by predicted peaks: off by default; what is recorded as measured stays measured."""

import pytest

from services.descheduler.load_aware.predicted_peaks import at_predicted_peaks
from shared.events.descheduling import EvictionCaseOpened
from tests.unit.descheduler.load_aware_cluster import GIB, node, pod
from tests.unit.descheduler.small_cluster import CONFIG, SmallCluster

PREDICTED = CONFIG.replace("        args:\n", "        args:\n          usePredictedPeaks: true\n")


def hot_soon(config: str, peak: int | None) -> EvictionCaseOpened | None:
    """Node a uses 6 of 10 cores, less than its high threshold of 7; its agent predicts a peak."""
    cluster = SmallCluster(config)
    for name in ("a", "b"):
        cluster.node(name)
    for number in range(6):
        cluster.pod(f"p-{number}", "a", priority=9500 if number < 4 else 5500)
    cluster.report("a", {f"p-{number}": 1000 for number in range(6)}, peak=peak)
    cluster.report("b", {}, system=100)
    return cluster.cycle()


def test_a_node_that_is_to_run_hot_is_a_source_before_it_does() -> None:
    found = hot_soon(PREDICTED, 6000)  # of its four prod pods with the system; two others use 2 cores
    assert found is not None
    (cause,) = found.causes
    assert (cause.node, cause.measured, cause.predicted, cause.limit) == ("a", 6000, 8000, 7000)
    (expected,) = found.expected
    assert (expected.before, expected.after) == (6000, 6000 - 1000 * len(found.victims))
    assert found.victims


@pytest.mark.parametrize(("config", "peak"), [(CONFIG, 6000), (PREDICTED, 4500), (PREDICTED, None)])
def test_nothing_moves_by_default_for_a_lower_peak_or_without_a_prediction(config: str, peak: int | None) -> None:
    assert hot_soon(config, peak) is None


def test_a_predicted_peak_is_at_most_what_the_node_has_and_at_least_what_was_measured() -> None:
    batch, prod = pod("batch", priority=5500), pod("prod")
    there = node("a", 12_000, GIB, [(prod, 6_000, 0), (batch, 4_000, 0)])
    (more,) = at_predicted_peaks([there._replace(peak={"cpu": 9_000})])
    assert more.total == {"cpu": 13_000, "memory": GIB}
    (less,) = at_predicted_peaks([there._replace(peak={"cpu": 1_000})])
    assert less.total["cpu"] == 12_000
    (much,) = at_predicted_peaks([there._replace(peak={"cpu": 10**9, "example.com/card": 7})])
    assert (much.total["cpu"], much.total["example.com/card"]) == (32_000, 0)
