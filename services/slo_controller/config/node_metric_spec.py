"""The spec of a node's NodeMetric: how it is to report. Source: spec/slo-controller.md 1.4; upstream pkg/slo-controller/nodemetric."""

from typing import Any

from services.slo_controller.config.colocation_strategy import DEFAULTS, effective, invalid
from shared.kube.meta import Metadata
from shared.kube.slo_config import ColocationConfig, ColocationStrategy


def node_metric_spec(config: ColocationConfig, node: Metadata) -> dict[str, Any]:
    """The spec, as plain JSON: the strategy's where it is valid and on, else the defaults; reports are made either way."""
    strategy = effective(config, node)
    in_force = strategy if strategy.enable is True and invalid(strategy) is None else DEFAULTS
    return {"metricCollectPolicy": _policy(in_force)}


def _policy(strategy: ColocationStrategy) -> dict[str, Any]:
    windows = strategy.metric_aggregate_policy
    return {
        "aggregateDurationSeconds": strategy.metric_aggregate_duration_seconds,
        "reportIntervalSeconds": strategy.metric_report_interval_seconds,
        "nodeAggregatePolicy": {"durations": list(windows.durations) if windows else []},
        "nodeMemoryCollectPolicy": strategy.metric_memory_collect_policy,
    }
