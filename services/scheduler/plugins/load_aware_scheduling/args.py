"""LoadAwareSchedulingArgs: fields, defaults and checks.

Source: spec/scheduler-core.md 3.1, spec/api.md 4.3; upstream pkg/scheduler/apis/config/{v1/defaults.go,validation}.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import field

from shared.closest_name import with_closest_field
from shared.errors import KoordError
from shared.kube.instants import SECOND, BadTime, duration_ns
from shared.type_error_words import in_plain_words

AGGREGATION_TYPES = ("avg", "p50", "p90", "p95", "p99")
"""Aggregations of the usage over a window in a report."""

Percents = dict[str, int]
"""Resource name -> whole percent."""


class BadArgs(KoordError):
    """Arguments that cannot be used; gives each path, the value and what is allowed."""

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__(f"{source}: {'; '.join(problems)}")
        self.problems = problems


class AggregatedArgs(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """Evaluates nodes by a percentile over a window instead of the latest average.

    Attributes:
        usage_thresholds: the filter uses the percentile when this is not empty and `usage_aggregation_type` is set.
        usage_aggregated_duration: Go duration; absent or 0 means the longest window reported.
        score_aggregation_type: the score uses the percentile when this is set.
    """

    usage_thresholds: Percents = field(default_factory=dict)
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str | None = None
    score_aggregation_type: str = ""
    score_aggregated_duration: str | None = None


class LoadAwareArgs(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """The plugin's arguments, by their upstream JSON names. Absent and empty fields take `with_defaults`' values.

    Attributes:
        filter_expired_node_metrics: reject nodes whose report is older than `node_metric_expiration_seconds`.
        enable_schedule_when_node_metrics_expired: with the former, pass such nodes without a check instead.
        resource_weights: weights of the score, 1..100.
        dominant_resource_weight: extra weight of a node's scarcest resource, 0..100.
        usage_thresholds: percent of allocatable beyond which a node is rejected; 0 does not check the resource.
        prod_usage_thresholds: the same for prod pods, against the usage of prod pods.
        prod_usage_include_sys: usage of the system counts as usage of prod pods.
        estimator: name of the estimator; there is one, so that any name stands for it.
        estimated_scaling_factors: percent of a request that a pod is expected to use, 1..100.
        estimated_seconds_after_pod_scheduled: time for which a pod counts with its estimate, whatever is measured; 0 or
            less: none.
        estimated_seconds_after_initialized: the same from its initialisation on, once it is initialised.
        allow_customize_estimation: pods may override the three fields before by annotations.
        supported_resources: more resources whose load is tracked.
    """

    filter_expired_node_metrics: bool | None = None
    node_metric_expiration_seconds: int | None = None
    enable_schedule_when_node_metrics_expired: bool | None = None
    resource_weights: dict[str, int] = field(default_factory=dict)
    dominant_resource_weight: int = 0
    usage_thresholds: Percents = field(default_factory=dict)
    prod_usage_thresholds: Percents = field(default_factory=dict)
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool | None = None
    estimator: str = ""
    estimated_scaling_factors: Percents = field(default_factory=dict)
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    aggregated: AggregatedArgs | None = None
    supported_resources: tuple[str, ...] = ()

    def with_defaults(self) -> "LoadAwareArgs":
        """The arguments with every absent or empty field at its default. A map of factors is completed by cpu and memory."""
        changes: dict[str, Any] = {
            name: default
            for name, default in (
                ("filter_expired_node_metrics", True),
                ("enable_schedule_when_node_metrics_expired", False),
                ("node_metric_expiration_seconds", 180),
            )
            if getattr(self, name) is None
        }
        if not self.usage_thresholds:
            changes["usage_thresholds"] = {"cpu": 65, "memory": 95}
        if not self.resource_weights and not self.dominant_resource_weight:
            changes["resource_weights"] = {"cpu": 1, "memory": 1}
        changes["estimated_scaling_factors"] = {"cpu": 85, "memory": 70} | self.estimated_scaling_factors
        return msgspec.structs.replace(self, **changes)

    def problems(self) -> tuple[str, ...]:
        """The invalid values, as `path is value; what is allowed`. Meant for arguments with defaults."""
        return tuple(self._problems())

    def resources(self) -> tuple[str, ...]:
        """The resources whose load is tracked, sorted: every one that the arguments name, and always cpu and memory."""
        named = (
            self.usage_thresholds,
            self.prod_usage_thresholds,
            self.aggregated.usage_thresholds if self.aggregated else (),
            self.resource_weights,
            self.estimated_scaling_factors,
            self.supported_resources,
        )
        return tuple(sorted({"cpu", "memory"}.union(*named)))

    @property
    def expiration_ns(self) -> int:
        """Age from which on a report counts as expired."""
        return (self.node_metric_expiration_seconds or 0) * SECOND

    def _problems(self) -> Iterator[str]:
        expiration = self.node_metric_expiration_seconds
        if expiration is not None and expiration <= 0:
            yield f"nodeMetricExpirationSeconds is {expiration}; give seconds above 0"
        yield from _outside("resourceWeights", self.resource_weights, 1, 100)
        for name in self.resource_weights:
            if name not in self.estimated_scaling_factors:
                yield f"resourceWeights[{name}] has no factor in estimatedScalingFactors; add one"
        yield from _outside("dominantResourceWeight", self.dominant_resource_weight, 0, 100)
        yield from _outside("usageThresholds", self.usage_thresholds, 0, 100)
        yield from _outside("estimatedScalingFactors", self.estimated_scaling_factors, 1, 100)
        if self.aggregated is None:
            return
        yield from _outside("aggregated.usageThresholds", self.aggregated.usage_thresholds, 0, 100)
        for part, kind, window in (
            ("usage", self.aggregated.usage_aggregation_type, self.aggregated.usage_aggregated_duration),
            ("score", self.aggregated.score_aggregation_type, self.aggregated.score_aggregated_duration),
        ):
            if kind and kind not in AGGREGATION_TYPES:
                yield f"aggregated.{part}AggregationType is {kind!r}; give one of {', '.join(AGGREGATION_TYPES)}"
            yield from _bad_window(f"aggregated.{part}AggregatedDuration", window)


def read_args(raw: Mapping[str, Any], source: str = "LoadAwareSchedulingArgs") -> LoadAwareArgs:
    """Decodes, defaults and checks the arguments in a scheduler configuration.

    Args:
        raw: the decoded `args` of the plugin; apiVersion and kind may be among them.
        source: their path, for the text of the error.

    Raises:
        BadArgs: a field is unknown, of the wrong type, or out of range.
    """
    args = decode_args(raw, source).with_defaults()
    if problems := args.problems():
        raise BadArgs(source, problems)
    return args


def decode_args(raw: Mapping[str, Any], source: str = "LoadAwareSchedulingArgs") -> LoadAwareArgs:
    """Decodes arguments without defaults or range checks.

    Raises:
        BadArgs: a field is unknown or of the wrong type.
    """
    annotated = {name: value for name, value in raw.items() if name not in ("apiVersion", "kind") and value is not None}
    try:
        return msgspec.convert(annotated, LoadAwareArgs)
    except msgspec.ValidationError as error:
        raise BadArgs(source, (with_closest_field(in_plain_words(str(error)), LoadAwareArgs),)) from error


def _outside(path: str, found: int | Mapping[str, int], low: int, high: int) -> Iterator[str]:
    values = {path: found} if isinstance(found, int) else {f"{path}[{name}]": value for name, value in found.items()}
    for name, value in values.items():
        if not low <= value <= high:
            yield f"{name} is {value}; give a whole number from {low} to {high}"


def _bad_window(path: str, text: str | None) -> Iterator[str]:
    if text is None:
        return
    try:
        window = duration_ns(text)
    except BadTime as error:
        yield f"{path}: {error}"
        return
    if window < 0:
        yield f"{path} is {text!r}; give a duration of 0 or more"
