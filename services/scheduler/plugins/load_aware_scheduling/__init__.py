"""LoadAwareScheduling: keeps pods off nodes whose measured usage is high, and prefers those with the most free
capacity.

A node's report is minutes old while pods arrive by the second, so what is *measured* is completed by an *estimate* for
every pod that the report cannot contain yet. `load_cache` keeps both as arrays over nodes; `filter_and_score` is its
copy for one cycle. `estimate_window` decides which pods count, and until when.

Source: spec/scheduler-core.md 3; upstream pkg/scheduler/plugins/loadaware.
"""

from services.scheduler.framework.plugin_spec import PluginSpec, Point
from services.scheduler.framework.reasons import ReasonText
from services.scheduler.plugins.load_aware_scheduling.args import read_args
from services.scheduler.state.cluster_event import ClusterEvent

_LOAD = frozenset(
    (
        ClusterEvent.METRIC,
        ClusterEvent.POD_RELEASED,
        ClusterEvent.ALLOCATABLE,
        ClusterEvent.ANNOTATIONS,
    )
)

SPEC = PluginSpec(
    name="LoadAwareScheduling",
    implementation="services.scheduler.plugins.load_aware_scheduling.plugin:LoadAwareScheduling",
    points=frozenset(
        (
            Point.FILTER,
            Point.SCORE,
        )
    ),
    read_args=read_args,
    reasons={
        "NodeMetricExpired": ReasonText("node(s) nodeMetric expired", "节点的 NodeMetric 已过期"),
        "UsageExceedsThreshold": ReasonText("node(s) {detail} usage exceed threshold", "节点 {detail} 使用率超过阈值"),
        "AggregatedUsageExceedsThreshold": ReasonText(
            "node(s) {detail} aggregated usage exceed threshold", "节点 {detail} 聚合使用率超过阈值"
        ),
    },
    queueing_hints={
        **dict.fromkeys(("NodeMetricExpired", "UsageExceedsThreshold", "AggregatedUsageExceedsThreshold"), _LOAD),
    },
    counts_placements=True,
    keeps_capacity=True,
    view="node",
)
