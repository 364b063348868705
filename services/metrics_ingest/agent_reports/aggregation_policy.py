"""Aggregation policy of a node: the collect policy of its NodeMetric's spec, within the bounds that agents keep.

Source: spec/slo-controller.md 1.1; spec/node-agent.md 7.1.
"""

from typing import NamedTuple

from shared.kube.instants import SECOND, BadTime, duration_ns
from shared.kube.node import NodeMetricSpec

AGGREGATE_S = 300
LEAST_AGGREGATE_S = 60
INTERVAL_S = 60
LEAST_INTERVAL_S = 30
WINDOWS_S = (300, 600, 1800)

LONGEST_S = 7_200
"""Samples older than two hours are dropped; a longer window stays empty."""


class Policy(NamedTuple):
    """Intervals and windows, all in seconds.

    Attributes:
        aggregate_s: window of the plain usages.
        interval_s: between two recorded reports.
        windows_s: windows of the percentiles, in the order of the spec.
    """

    aggregate_s: int = AGGREGATE_S
    interval_s: int = INTERVAL_S
    windows_s: tuple[int, ...] = WINDOWS_S

    @property
    def longest_s(self) -> int:
        """The age up to which a sample is used."""
        return min(max(self.aggregate_s, *self.windows_s, 0), LONGEST_S)


def policy_of(spec: NodeMetricSpec | None, min_interval_s: int = LEAST_INTERVAL_S) -> Policy:
    """Returns the policy of a spec, with defaults for absent fields.

    A window that is not a whole number of seconds is skipped.
    """
    collect_policy = spec.metric_collect_policy if spec else None
    if collect_policy is None:
        return Policy(interval_s=max(INTERVAL_S, min_interval_s))
    aggregate_s, interval_s = collect_policy.aggregate_duration_seconds, collect_policy.report_interval_seconds
    windows = collect_policy.node_aggregate_policy
    return Policy(
        aggregate_s=max(AGGREGATE_S if aggregate_s is None else aggregate_s, LEAST_AGGREGATE_S),
        interval_s=max(INTERVAL_S if interval_s is None else interval_s, min_interval_s),
        windows_s=WINDOWS_S if windows is None else tuple(filter(None, map(_seconds, windows.durations))),
    )


def _seconds(text: str) -> int:
    try:
        return max(duration_ns(text) // SECOND, 0)
    except BadTime:
        return 0
