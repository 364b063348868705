"""Thresholds of a node: those of the arguments, overridden part by part by the node's annotation.

Source: spec/scheduler-core.md 3.5, steps 2 and 3; upstream apis/extension/load_aware.go.
"""

from typing import NamedTuple

import msgspec

from services.scheduler.plugins.load_aware_scheduling.args import LoadAwareArgs
from services.scheduler.state.strict_annotation_parsing import Int64
from shared.kube.instants import BadTime, duration_ns
from shared.kube.json_text import read_json
from shared.kube.node import Node
from shared.type_error_words import field_fault

ANNOTATION = "scheduling.koordinator.sh/usage-thresholds"

Percents = dict[str, int]


class Window(NamedTuple):
    """A percentile over a window of a report; duration 0 stands for the longest reported window."""

    type: str
    duration_ns: int


class Thresholds(NamedTuple):
    """Thresholds of one node, in percent of allocatable; resources that are absent or 0 are not checked.

    Attributes:
        usage: for every pod, unless prod pods have their own; of `window`'s usage if there is one.
        prod: for prod pods, against the usage of prod pods; in force when any of it is not 0.
    """

    usage: Percents
    prod: Percents
    window: Window | None


class _Aggregated(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, Int64 | None] | None = None
    usage_aggregation_type: str | None = None
    usage_aggregated_duration: str | None = None


class _AnnotatedThresholds(msgspec.Struct, rename="camel"):
    usage_thresholds: dict[str, Int64 | None] | None = None
    prod_usage_thresholds: dict[str, Int64 | None] | None = None
    aggregated_usage: _Aggregated | None = None


def default_thresholds(args: LoadAwareArgs) -> Thresholds:
    """The thresholds of a node without an annotation."""
    aggregated = args.aggregated
    window = None
    if aggregated and aggregated.usage_thresholds and aggregated.usage_aggregation_type:
        window = _window(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration)
        return Thresholds(aggregated.usage_thresholds, args.prod_usage_thresholds, window)
    return Thresholds(args.usage_thresholds, args.prod_usage_thresholds, None)


def score_window(args: LoadAwareArgs) -> Window | None:
    """The window whose usage the score uses, None for the latest average."""
    aggregated = args.aggregated
    if aggregated is None or not aggregated.score_aggregation_type:
        return None
    return _window(aggregated.score_aggregation_type, aggregated.score_aggregated_duration)


def node_thresholds(node: Node, default: Thresholds) -> Thresholds:
    """The thresholds of this node. An ill-formed annotation is ignored; an empty part of it is that of the arguments.

    A windowed part (thresholds and type) outranks plain thresholds wherever either comes from.

    Args:
        default: `default_thresholds` of the arguments.
    """
    annotated = _read((node.metadata.annotations or {}).get(ANNOTATION))
    if annotated is None:
        return default
    prod = _percents(annotated.prod_usage_thresholds) or default.prod
    own = annotated.aggregated_usage
    if own and own.usage_thresholds and own.usage_aggregation_type:
        window = _window(own.usage_aggregation_type, own.usage_aggregated_duration)
        return Thresholds(_percents(own.usage_thresholds), prod, window)
    if default.window:
        return default._replace(prod=prod)
    return Thresholds(_percents(annotated.usage_thresholds) or default.usage, prod, None)


def thresholds_fault(text: str) -> str:
    """Returns why the annotation of a node is ignored; empty where it is not."""
    try:
        _parsed(text)
    except (msgspec.MsgspecError, BadTime) as error:
        return f"it cannot be read, and the thresholds of the configuration count: {field_fault(error)}"
    return ""


def _read(text: str | None) -> _AnnotatedThresholds | None:
    try:
        return _parsed(text)
    except (msgspec.MsgspecError, BadTime):
        return None


def _parsed(text: str | None) -> _AnnotatedThresholds | None:
    if not text:
        return None
    annotated: _AnnotatedThresholds | None = read_json(text, _AnnotatedThresholds | None)
    if annotated and annotated.aggregated_usage and (duration := annotated.aggregated_usage.usage_aggregated_duration):
        duration_ns(duration)
    return annotated


def _percents(annotated: dict[str, Int64 | None] | None) -> Percents:
    return {name: value or 0 for name, value in (annotated or {}).items()}


def _window(type_: str, duration: str | None) -> Window:
    return Window(type_, duration_ns(duration) if duration else 0)
