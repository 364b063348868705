"""Amplified resources: a node whose amounts are multiplied by a ratio, so that it is overcommitted.

Source: spec/scheduler-core.md 4.2; upstream apis/extension/node_resource_amplification.go.
"""

import math
from collections.abc import Mapping

import msgspec

from shared.kube.json_text import read_json
from shared.type_error_words import field_fault, unreadable_annotation

ANNOTATION = "node.koordinator.sh/resource-amplification-ratio"

MOST = 2.0**62
"""Upper bound of an amplified amount."""

Ratios = Mapping[str, float]
"""Resource -> ratio; one that is not above 1 changes nothing."""


class BadRatios(Exception):
    """An annotation that is no map of numbers."""


def read_ratios(annotations: Mapping[str, str] | None) -> Ratios:
    """The ratios in annotations.

    Raises:
        BadRatios: the annotation cannot be read.
    """
    text = (annotations or {}).get(ANNOTATION)
    if not text:
        return {}
    try:
        ratios: Ratios = read_json(text, dict[str, float])
    except msgspec.MsgspecError as error:
        raise BadRatios(unreadable_annotation(ANNOTATION, field_fault(error))) from error
    return ratios


def amplified(amount: int, ratio: float) -> int:
    """The amount times the ratio, rounded up; unchanged when the ratio is not above 1."""
    return amount if ratio <= 1 else math.ceil(min(float(amount) * ratio, MOST))
