"""LoadAwareSchedulingArgs: valid values and their effect. Source: spec/scheduler-core.md 3.1."""

from typing import Any

import msgspec
import pytest

from services.scheduler.plugins.load_aware_scheduling.args import BadArgs, decode_args, read_args
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import (
    Window,
    default_thresholds,
    node_thresholds,
    score_window,
)
from shared.kube.instants import SECOND
from tests.unit.scheduler.load_aware_objects import node


def test_what_is_left_out_takes_its_default() -> None:
    assert msgspec.to_builtins(read_args({})) == {
        "filterExpiredNodeMetrics": True,
        "nodeMetricExpirationSeconds": 180,
        "enableScheduleWhenNodeMetricsExpired": False,
        "resourceWeights": {"cpu": 1, "memory": 1},
        "usageThresholds": {"cpu": 65, "memory": 95},
        "estimatedScalingFactors": {"cpu": 85, "memory": 70},
    }


def test_empty_maps_count_as_left_out_and_factors_are_completed() -> None:
    args = read_args({"usageThresholds": {}, "resourceWeights": {}, "estimatedScalingFactors": {"cpu": 50}})
    assert args.usage_thresholds == {"cpu": 65, "memory": 95}
    assert args.resource_weights == {"cpu": 1, "memory": 1}
    assert args.estimated_scaling_factors == {"cpu": 50, "memory": 70}


def test_a_dominant_weight_alone_leaves_the_others_at_nothing() -> None:
    assert read_args({"dominantResourceWeight": 3}).resource_weights == {}


def test_the_published_configuration_is_taken_as_it_stands() -> None:
    args = read_args(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "LoadAwareSchedulingArgs",
            "usageThresholds": {"cpu": 75, "memory": 85},
            "aggregated": {"usageThresholds": {"cpu": 75}, "usageAggregationType": "p99"},
            "scoreAccordingProdUsage": None,
        }
    )
    assert default_thresholds(args).window == Window("p99", 0)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpirationSeconds is 0; give seconds above 0"),
        ({"resourceWeights": {"cpu": 0}}, "resourceWeights[cpu] is 0; give a whole number from 1 to 100"),
        ({"resourceWeights": {"example.com/x": 1}}, "resourceWeights[example.com/x] has no factor"),
        ({"dominantResourceWeight": 101}, "dominantResourceWeight is 101; give a whole number from 0 to 100"),
        ({"usageThresholds": {"cpu": -1}}, "usageThresholds[cpu] is -1; give a whole number from 0 to 100"),
        (
            {"estimatedScalingFactors": {"cpu": 0}},
            "estimatedScalingFactors[cpu] is 0; give a whole number from 1 to 100",
        ),
        ({"aggregated": {"usageThresholds": {"cpu": 101}}}, "aggregated.usageThresholds[cpu] is 101"),
        ({"aggregated": {"usageAggregationType": "max"}}, "aggregated.usageAggregationType is 'max'; give one of avg,"),
        ({"aggregated": {"scoreAggregationType": "p999"}}, "aggregated.scoreAggregationType is 'p999'"),
        ({"aggregated": {"usageAggregatedDuration": "-5m0s"}}, "give a duration of 0 or more"),
        ({"aggregated": {"scoreAggregatedDuration": "5 minutes"}}, "'5 minutes' is not a duration"),
        ({"usageThresholds": {"cpu": "65"}}, "$.usageThresholds"),
        ({"usageTresholds": {"cpu": 65}}, "usageTresholds"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_path(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadArgs) as caught:
        read_args(raw, "ConfigMap koord-scheduler-config")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("ConfigMap koord-scheduler-config: ")


def test_every_problem_is_named_at_once() -> None:
    args = decode_args({"usageThresholds": {"cpu": 101, "memory": -1}, "dominantResourceWeight": -1}).with_defaults()
    assert len(args.problems()) == 3


def test_prod_thresholds_are_not_checked() -> None:
    assert read_args({"prodUsageThresholds": {"cpu": 101, "memory": -1}}).prod_usage_thresholds["cpu"] == 101


def test_accounts_are_kept_of_every_resource_that_is_named() -> None:
    args = read_args(
        {
            "prodUsageThresholds": {"nvidia.com/gpu": 50},
            "aggregated": {"usageThresholds": {"ephemeral-storage": 50}},
            "supportedResources": ["kubernetes.io/batch-cpu", "cpu"],
        }
    )
    assert args.resources() == ("cpu", "ephemeral-storage", "kubernetes.io/batch-cpu", "memory", "nvidia.com/gpu")


USAGE = {"usageThresholds": {"cpu": 65}}
WINDOWED = USAGE | {"aggregated": {"usageThresholds": {"cpu": 40}, "usageAggregationType": "p50"}}
OWN_WINDOW = (
    '{"aggregatedUsage":{"usageThresholds":{"cpu":45},"usageAggregationType":"p95","usageAggregatedDuration":"5m"}}'
)


@pytest.mark.parametrize(
    ("args", "annotation", "usage", "prod", "window"),
    [
        (USAGE, '{"usageThresholds":{"memory":75}}', {"memory": 75}, {}, None),
        (USAGE, '{"prodUsageThresholds":{"cpu":40}}', {"cpu": 65}, {"cpu": 40}, None),
        (USAGE, OWN_WINDOW, {"cpu": 45}, {}, Window("p95", 300 * SECOND)),
        (WINDOWED, '{"usageThresholds":{"cpu":70}}', {"cpu": 40}, {}, Window("p50", 0)),
        (USAGE, '{"aggregatedUsage":{"usageThresholds":{"cpu":45}},"usageThresholds":{"cpu":9}}', {"cpu": 9}, {}, None),
        (USAGE, '{"usageThresholds":{"cpu":"50"}}', {"cpu": 65}, {}, None),
        (USAGE, '{"usageThresholds":{"cpu":50.5}}', {"cpu": 65}, {}, None),
        (
            USAGE,
            '{"aggregatedUsage":{"usageAggregatedDuration":"x"},"usageThresholds":{"cpu":9}}',
            {"cpu": 65},
            {},
            None,
        ),
        (USAGE, '{"usageThresholds":{"cpu":null}}', {"cpu": 0}, {}, None),
        *((USAGE, text, {"cpu": 65}, {}, None) for text in ("null", "{}", "", "oops", "[]")),
    ],
)
def test_a_node_overrides_thresholds_part_by_part(
    args: dict[str, Any], annotation: str, usage: dict[str, int], prod: dict[str, int], window: Window | None
) -> None:
    assert node_thresholds(node(thresholds=annotation), default_thresholds(read_args(args))) == (usage, prod, window)


def test_the_score_has_a_window_of_its_own() -> None:
    aggregated = {"scoreAggregationType": "p90", "scoreAggregatedDuration": "15m"}
    assert score_window(read_args({"aggregated": aggregated})) == Window("p90", 900 * SECOND)
    assert score_window(read_args({"aggregated": {"usageAggregationType": "p90"}})) is None
