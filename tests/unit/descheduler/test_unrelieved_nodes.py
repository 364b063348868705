"""A hot node that a cycle leaves as it is has its reason in the log, as `koord why node` shows it."""

import pytest

from cli.node.high_load_that_stays import lines_of, plugins_of
from services.descheduler.load_aware.unrelieved_nodes import MOST_NODES
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
            "evictableNamespaces leaves out namespace default (3 of 3 pods)",
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
            "its usage is not yet high for the 4 cycles in a row after which pods leave it",
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


def test_a_pod_whose_usage_is_not_reported_has_that_as_its_reason() -> None:
    cluster = hot_cluster()
    cluster.report("hot", {}, system=9_000)
    assert cluster.cycle() is None
    assert reason(cluster) == "its usage is not reported, so that no destination can be checked (3 of 3 pods)"


def test_a_dry_run_of_the_plugin_has_no_reasons_for_what_it_does_not_do() -> None:
    cluster = hot_cluster(CONFIG.replace("anomalyCondition:", "dryRun: true\n          anomalyCondition:"))
    assert cluster.cycle() is None
    assert reason(cluster) == ""


def test_a_wave_of_load_records_the_reasons_of_some_nodes_and_the_number_of_the_others() -> None:
    cluster = SmallCluster(CONFIG.replace("consecutiveAbnormalities: 1", "consecutiveAbnormalities: 9"))
    recorded: list[AnomaliesObserved] = []
    cluster.record = lambda record: (  # type: ignore[method-assign]
        recorded.append(record.event) if isinstance(record.event, AnomaliesObserved) else None
    )
    names = [f"n{number:02}" for number in range(MOST_NODES + 3)]
    for name in names:
        cluster.node(name)
    for _ in range(2):
        for name in names:
            cluster.report(name, {}, system=9_000)
        cluster.cycle()
        cluster.wait(10)
    first, second = recorded
    assert list(first.unrelieved) == names[:MOST_NODES]
    assert (first.unrelieved_others, second.unrelieved_others) == (3, 3)
    assert first.unrelieved == second.unrelieved
    record = RecordedEvent("descheduling", 7, second)
    assert "moved no pod from it" in next(lines_of([record], names[0]))
    [line] = lines_of([record], names[-1])
    assert line.endswith("(descheduling/7) has the reasons of 20 nodes, and not of 3 more")
    assert list(lines_of([record], "cold")) == []


def test_the_reason_is_shown_with_its_cycle_for_its_node_alone() -> None:
    event = AnomaliesObserved(of=OF, unrelieved={"hot": "it has no pods that could leave it"})
    [line] = lines_of([RecordedEvent("descheduling", 7, event)], "hot")
    assert line.startswith(
        "its load was high, and koord-descheduler/LowNodeLoad moved no pod from it, in the cycle of "
    )
    assert line.endswith("(descheduling/7): it has no pods that could leave it")
    assert list(lines_of([RecordedEvent("descheduling", 7, event)], "cold")) == []


def test_a_paused_plugin_is_named_instead_of_its_last_reasons() -> None:
    config = CONFIG.replace("anomalyCondition:", "paused: true\n          anomalyCondition:")
    assert plugins_of(CONFIG) == {OF: False}
    assert plugins_of(config) == {OF: True}
    event = AnomaliesObserved(of=OF, unrelieved={"hot": "no destination"})
    record = RecordedEvent("descheduling", 7, event)
    [line] = lines_of([record], "hot", [OF])
    assert line == f"{OF} is paused, and moves no pod from any node, whatever its load"
