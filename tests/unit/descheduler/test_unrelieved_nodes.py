"""A hot node that a cycle leaves as it is has its reason in the log, as `koord why node` shows it."""

import pytest

from cli.node.high_load_that_stays import lines_of
from services.descheduler.state.detector_records import NO_RECORDS
from shared.events import RecordedEvent
from shared.events.descheduling import AnomaliesObserved
from tests.unit.descheduler.small_cluster import CONFIG, SmallCluster
from tests.unit.descheduler.test_cycle import hot_cluster, report

OF = "koord-descheduler/LowNodeLoad"


def reason(cluster: SmallCluster) -> str:
    """Returns the reason that the newest record has for the hot node; empty for none."""
    unrelieved = cluster.state.detectors.get(OF, NO_RECORDS).unrelieved
    assert set(unrelieved) <= {"hot"}
    return unrelieved.get("hot", "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("anomalyCondition:", "evictableNamespaces: {exclude: [default]}\n          anomalyCondition:"),
            "evictableNamespaces has not namespace default (3 of 3 pods)",
        ),
        (
            ("deschedulingInterval: 10s", "deschedulingInterval: 10s\nmaxNoOfPodsToEvictPerNode: 0"),
            "maxNoOfPodsToEvictPerNode of hot is 0 (2 of 3 pods); ",
        ),
        (
            ("anomalyCondition:", "numberOfNodes: 2\n          anomalyCondition:"),
            "2 nodes are below the low thresholds, and numberOfNodes is 2: more than that are needed",
        ),
        (("cpu: 40,", "cpu: 1,"), "no node is below the low thresholds, so there is no destination"),
        (
            ("consecutiveAbnormalities: 1", "consecutiveAbnormalities: 3"),
            "its usage is high for 1 of the 4 cycles in a row after which pods leave it",
        ),
    ],
)
def test_each_gate_that_keeps_pods_on_a_hot_node_is_named(change: tuple[str, str], why: str) -> None:
    cluster = hot_cluster(CONFIG.replace(*change))
    assert cluster.cycle() is None
    assert reason(cluster).startswith(why)


def test_a_case_that_is_not_measured_yet_is_the_reason_and_less_load_ends_it() -> None:
    cluster = hot_cluster()
    assert cluster.cycle() is not None
    assert reason(cluster) == ""
    report(cluster)
    assert cluster.cycle() is None
    assert reason(cluster).startswith(
        "case lownodeload-1 moves pods off node hot, and its effect is not measured yet (2"
    )
    cluster.report("hot", {f"web-{number}": 1_000 for number in range(3)})
    cluster.cycle()
    assert reason(cluster) == ""


def test_the_reason_is_shown_with_its_cycle_for_its_node_alone() -> None:
    event = AnomaliesObserved(of=OF, unrelieved={"hot": "it has no pods that could leave it"})
    [line] = lines_of([RecordedEvent("descheduling", 7, event)], "hot")
    assert line.startswith("its load is high, and koord-descheduler/LowNodeLoad moves no pod from it, by the cycle of ")
    assert line.endswith("(descheduling/7): it has no pods that could leave it")
    assert list(lines_of([RecordedEvent("descheduling", 7, event)], "cold")) == []
