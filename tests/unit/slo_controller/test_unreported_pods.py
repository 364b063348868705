"""Pods that came after the newest report count with their requests, so that nothing is overcommitted twice."""

import pytest

from tests.support.slo_cluster import ON, Cluster, G, running

WITHOUT_MARGIN = ON | {"cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100}


def idle_node() -> Cluster:
    """A node of 32 cores that uses one of them, without a margin."""
    cluster = Cluster()
    cluster.configure(WITHOUT_MARGIN)
    cluster.node(cpu="32", memory="64G")
    cluster.report(30, {}, system=(1_000, G))
    cluster.decide(31)
    return cluster


def test_a_prod_pod_that_came_after_the_report_is_not_overcommitted_again() -> None:
    cluster = idle_node()
    assert cluster.batch_cpu() == 31_000
    cluster.pod("prod", cpu="24", memory="1G", at_s=45)
    decided = cluster.decided(46)
    assert decided is not None
    assert decided.batch_cpu is not None
    assert (decided.why, decided.batch_cpu.unreported, decided.batch_cpu.amount) == ("changed", 24_000, 7_000)


def test_a_small_pod_beyond_the_margin_counts_below_the_threshold_too() -> None:
    cluster = idle_node()
    cluster.pod("prod", cpu="1", memory="1G", at_s=45)
    cluster.decide(46)
    assert cluster.batch_cpu() == 30_000


def test_the_margin_absorbs_the_first_requests() -> None:
    cluster = running()
    cluster.decide(31)
    cluster.pod("a", cpu="35", memory="1G", at_s=45)
    assert cluster.decide(46) == []
    cluster.pod("b", cpu="4", memory="1G", at_s=47)
    cluster.decide(48)
    assert cluster.batch_cpu() == 21_000
    cluster.report(90, {"web": (33_000, 33 * G), "a": (1_000, G), "b": (0, G)}, system=(7_000, 12 * G))
    cluster.decide(91)
    assert cluster.batch_cpu() == 24_000


def test_a_pod_that_replaces_another_counts_with_the_difference() -> None:
    cluster = Cluster()
    cluster.configure(WITHOUT_MARGIN)
    cluster.node(cpu="32", memory="64G")
    cluster.pod("old", cpu="10", memory="1G")
    cluster.report(30, {"old": (8_000, G)})
    cluster.decide(31)
    assert cluster.batch_cpu() == 24_000
    cluster.no_pod("old", at_s=44)
    cluster.pod("new", cpu="10", memory="1G", at_s=45)
    cluster.decide(46)
    assert cluster.batch_cpu() == 22_000


@pytest.mark.parametrize("class_", ["koord-batch", "koord-free"])
def test_a_batch_pod_counts_nothing(class_: str) -> None:
    cluster = idle_node()
    cluster.pod("batch", cpu="24", memory="1G", class_=class_, qos="BE", at_s=45)
    assert cluster.decide(46) == []


def test_usage_requests_since_and_batch_never_exceed_the_capacity() -> None:
    for percent in (0, 30, 65, 100):
        for cpu in range(0, 33, 4):
            cluster = Cluster()
            cluster.configure(ON | {"cpuReclaimThresholdPercent": percent})
            cluster.node(cpu="32", memory="64G")
            cluster.report(30, {}, system=(1_000, G))
            cluster.decide(31)
            cluster.pod("prod", cpu=str(cpu), memory="1G", at_s=45)
            cluster.decide(46)
            assert (cluster.batch_cpu() or 0) + min(1_000 + cpu * 1_000, 32_000) <= 32_000


def test_mid_resources_fall_with_the_requests_of_newer_pods() -> None:
    cluster = idle_node()
    cluster.configure(WITHOUT_MARGIN | {"midUnallocatedPercent": 50})
    decided = cluster.decided(40)
    assert decided is not None
    assert decided.mid_cpu is not None
    before = decided.mid_cpu.amount
    cluster.pod("prod", cpu="24", memory="1G", at_s=45)
    decided = cluster.decided(46)
    assert decided is not None
    assert decided.mid_cpu is not None
    assert before - decided.mid_cpu.amount == 12_000
