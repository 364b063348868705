"""The spec of a node's NodeMetric: the reporting interval and the aggregation windows.

Source: spec/slo-controller.md 1.4; upstream pkg/slo-controller/nodemetric.
"""

from typing import Any

from services.slo_controller.config.colocation_strategy import DEFAULTS, effective_strategy, first_invalid_field
from shared.admission.slo_config.strategy_words import COLLECT_POLICIES
from shared.kube.meta import Metadata
from shared.kube.slo_config import ColocationConfig, ColocationStrategy


def node_metric_spec(config: ColocationConfig, node: Metadata) -> dict[str, Any]:
    """Builds the spec as plain JSON: by the strategy where it is valid and enabled, else the defaults.

    Nodes report in both cases.
    """
    strategy = effective_strategy(config, node)
    in_force = strategy if strategy.enable is True and first_invalid_field(strategy) is None else DEFAULTS
    return {"metricCollectPolicy": _policy(in_force)}


def _policy(strategy: ColocationStrategy) -> dict[str, Any]:
    windows = strategy.metric_aggregate_policy
    return {
        "aggregateDurationSeconds": strategy.metric_aggregate_duration_seconds,
        "reportIntervalSeconds": strategy.metric_report_interval_seconds,
        "nodeAggregatePolicy": {"durations": list(windows.durations) if windows else []},
        "nodeMemoryCollectPolicy": _collect_policy(strategy.metric_memory_collect_policy),
    }


def _collect_policy(configured: str | None) -> str | None:
    """Returns the policy; the default for an unknown one, which the API server would refuse (spec/slo-controller.md 1.1)."""
    return configured if not configured or configured in COLLECT_POLICIES else COLLECT_POLICIES[0]
