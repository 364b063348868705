"""LoadCache and LoadState: the pods and reports that count, and the filter results and scores that follow."""

from typing import Any

import numpy as np
import pytest

from services.scheduler.plugins.load_aware_scheduling.filter_and_score import LoadState, reasons
from services.scheduler.plugins.load_aware_scheduling.load_cache import LoadCache
from services.scheduler.plugins.load_aware_scheduling.pod_estimate import estimate_node
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import PodCondition
from tests.unit.scheduler.load_aware_objects import (
    GIB,
    NOW,
    added,
    assign,
    expecting,
    filtered,
    metric,
    new_load_cache,
    node,
    place,
    pod,
    reported,
    scored,
    usage,
)

SCALING = "scheduling.koordinator.sh/load-estimated-scaling-factors"
AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
OVER = {"usageThresholds": {"cpu": 1}}


def busy(**args: Any) -> LoadCache:
    load_cache = new_load_cache(**args)
    load_cache.set_node(0, node())
    load_cache.set_metric(0, metric(usage(15_000, 30 * GIB)))
    return load_cache


def test_a_daemon_set_pod_passes_every_node() -> None:
    assert filtered(busy(**OVER), pod(owner="DaemonSet")) == ""
    assert filtered(busy(**OVER), pod(owner="ReplicaSet")) == "node(s) cpu usage exceed threshold"


def test_the_first_exceeded_resource_by_name_is_the_reason() -> None:
    load_cache = busy(usageThresholds={"memory": 1, "cpu": 0})
    assert filtered(load_cache, pod()) == "node(s) memory usage exceed threshold"
    code = int(LoadState(load_cache).filter(pod(), np.array([0]), NOW)[0])
    assert reasons(load_cache.resources)[code] == ("UsageExceedsThreshold", "memory")


def test_a_node_without_a_report_passes_and_scores_nothing() -> None:
    load_cache = busy(**OVER)
    load_cache.set_metric(0, None)
    assert (filtered(load_cache, pod()), scored(load_cache, pod())) == ("", 0)


def test_a_report_without_its_node_part_passes_but_expires() -> None:
    load_cache = busy(**OVER)
    load_cache.set_metric(0, metric(None))
    assert (filtered(load_cache, pod()), scored(load_cache, pod())) == ("", 0)
    assert filtered(load_cache, pod(), NOW + 180 * SECOND) == "node(s) nodeMetric expired"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "node(s) nodeMetric expired"),
        ({"enableScheduleWhenNodeMetricsExpired": True}, ""),
        ({"filterExpiredNodeMetrics": False}, "node(s) cpu usage exceed threshold"),
        (
            {"filterExpiredNodeMetrics": False, "enableScheduleWhenNodeMetricsExpired": True},
            "node(s) cpu usage exceed threshold",
        ),
        ({"usageThresholds": {"cpu": 0}}, ""),
    ],
)
def test_an_expired_report_is_treated_as_configured(args: dict[str, Any], reason: str) -> None:
    load_cache = busy(**(OVER | args))
    assert filtered(load_cache, pod(), NOW + 999 * SECOND) == reason
    assert scored(load_cache, pod(), NOW + 999 * SECOND) == 0


def test_a_report_without_a_time_is_expired_but_keeps_the_clock_of_the_one_before() -> None:
    load_cache = new_load_cache()
    load_cache.set_node(0, node())
    assign(load_cache, expecting(1700, 1), NOW - 3600 * SECOND)
    load_cache.set_metric(0, metric(usage(1000), reported("p", 1000, 0), at_ns=None), earlier_ns=NOW)
    assert added(load_cache, "node_delta") == (0, 0)
    assert filtered(load_cache, pod()) == "node(s) nodeMetric expired"
    load_cache.set_metric(0, metric(usage(1000), reported("p", 1000, 0), at_ns=None))
    assert added(load_cache, "node_delta")[0] == 700


def test_a_reported_window_that_is_no_duration_is_passed_over() -> None:
    aggregated = {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95"}
    load_cache = new_load_cache(aggregated=aggregated)
    load_cache.set_node(0, node())
    load_cache.set_metric(
        0, metric(usage(1000), windows={"a while": {"p95": usage(16_000)}, "5m": {"p95": usage(2000)}})
    )
    assert filtered(load_cache, pod()) == ""


def test_raw_allocatable_replaces_the_amplified_amounts_it_names() -> None:
    assert estimate_node(node(raw='{"cpu":"3500m","example.com/x":"2"}')) == {
        "cpu": 3500,
        "memory": 32 * GIB,
        "example.com/x": 2,
    }
    assert estimate_node(node(raw='{"cpu":4}'))["cpu"] == 4000
    assert all(estimate_node(node(raw=text))["cpu"] == 16_000 for text in ("bad", "null", "{}", '{"cpu":"x"}', "[1]"))


def test_a_negative_threshold_refuses_every_pod() -> None:
    load_cache = new_load_cache()
    load_cache.set_node(0, node(thresholds='{"usageThresholds":{"cpu":-1}}'))
    load_cache.set_metric(0, metric(usage(0)))
    assert filtered(load_cache, expecting(1, 1)) == "node(s) cpu usage exceed threshold"


@pytest.mark.parametrize(
    ("annotation", "text", "counts_until_s"),
    [
        (None, "", 30),
        (AFTER_SCHEDULED, "90", 90),
        (AFTER_SCHEDULED, "+60", 60),
        (AFTER_SCHEDULED, "0", 0),
        *((AFTER_SCHEDULED, text, 30) for text in (" 60", "1e3", "x", "", "-1", "9" * 30)),
        (AFTER_INITIALIZED, "100", 110),
    ],
)
def test_a_pod_chooses_how_long_its_estimate_counts(annotation: str | None, text: str, counts_until_s: int) -> None:
    load_cache = new_load_cache(allowCustomizeEstimation=True, estimatedSecondsAfterPodScheduled=30)
    initialized = PodCondition(type="Initialized", status="True", last_transition_time=instant_text(NOW + 10 * SECOND))
    own = {annotation: text} if annotation else None
    assign(load_cache, expecting(1000, 1, annotations=own, conditions=(initialized,)), NOW)
    for at_s, counts in ((counts_until_s - 1, counts_until_s > 0), (counts_until_s, False)):
        load_cache.set_metric(0, metric(usage(1), reported("p", 1, 1), at_ns=NOW + at_s * SECOND, interval_s=-1000))
        assert (added(load_cache, "node_delta")[0] > 0) is counts, at_s


def test_custom_factors_count_only_where_they_are_allowed() -> None:
    pod_amounts = expecting(1000, 1, annotations={SCALING: '{"cpu":50}'})
    for allowed, cpu in ((True, 500), (False, 1000)):
        load_cache = new_load_cache(allowCustomizeEstimation=allowed)
        assign(load_cache, pod_amounts, NOW)
        assert added(load_cache, "estimated")[0] == cpu


def test_a_pod_counts_from_its_condition_else_from_now() -> None:
    scheduled = PodCondition(type="PodScheduled", status="True", last_transition_time=instant_text(NOW - 99 * SECOND))
    for conditions, delta in (((scheduled,), 0), ((), 700)):
        load_cache = new_load_cache()
        load_cache.set_metric(0, metric(usage(1), reported("p", 1000, 0)))
        assign(load_cache, expecting(1700, 1, conditions=conditions), NOW)
        assert added(load_cache, "node_delta")[0] == delta


def test_a_placed_pod_weighs_on_the_next_of_its_cycle_alone() -> None:
    load_cache = new_load_cache()
    load_cache.set_node(0, node())
    load_cache.set_metric(0, metric(usage(1000)))
    state, rows, incoming = LoadState(load_cache), np.array([0]), expecting(1000, 1, "incoming")
    before = state.score(incoming, rows, NOW)[0]
    place(state, load_cache, expecting(8000, 1))
    assert state.filter(incoming, rows, NOW)[0] == 0
    assert state.score(incoming, rows, NOW)[0] < before
    assert scored(load_cache, incoming) == before


def test_what_a_cycle_places_is_what_the_record_counts() -> None:
    load_cache = busy()
    state = LoadState(load_cache)
    for index in range(5):
        placed = expecting(300 + index, GIB, f"p{index}")
        place(state, load_cache, placed)
        assign(load_cache, placed, NOW)
    assert (state._loads == load_cache.arrays.loads).all()


def test_amounts_beyond_int64_count_as_the_largest() -> None:
    load_cache = new_load_cache()
    load_cache.set_node(0, node())
    load_cache.set_metric(0, metric(usage(1000), reported("p", 2**63 - 1, 2**63 - 1)))
    assign(load_cache, expecting(2**63 - 1, 2**63 - 1), NOW)
    assert filtered(load_cache, pod("incoming")) == ""
