"""Batch resources by NUMA zone, as they are written to a NodeResourceTopology.

Source: spec/slo-controller.md 4.7; upstream pkg/slo-controller/noderesource/plugins/batchresource.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from services.slo_controller import batch
from services.slo_controller.batch import Batch
from services.slo_controller.prepare import ratio_of
from services.slo_controller.steady import differs
from services.slo_controller.strategy import DEFAULTS
from shared.domain.cpu_memory import mul_milli
from shared.kube.instants import SECOND
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.kube.quantity_text import Notation, quantity_text
from shared.kube.slo_config import ColocationStrategy

FIELDS = ("capacity", "allocatable", "available")

Zones = Sequence[Mapping[str, Any]]
"""The zones of the object as the API has them."""


class Write(NamedTuple):
    """What becomes of a topology.

    Attributes:
        zones: all zones as they must be.
        due: whether they are written.
    """

    zones: list[dict[str, Any]]
    due: bool


def has_zones(zones: Zones) -> bool:
    """Whether a zone says anything about cpu or memory; a topology without is passed over."""
    return any(each.get("name") in ("cpu", "memory") for zone in zones for each in zone.get("resources") or ())


def write_of(
    zones: Zones,
    found: Mapping[str, Batch],
    strategy: ColocationStrategy,
    ratio_text: str | None,
    *,
    synced_ns: int | None,
    now_ns: int,
) -> Write:
    """The zones with their batch resources.

    A number is replaced when it moved by more than `resourceDiffThreshold`; a zone that was not calculated keeps its numbers (quirk Q3)
    and is a reason to write when they are not zero.

    Args:
        synced_ns: when the object was last looked at; after `updateTimeThresholdSeconds` it is written anyway.
    """
    ratio = strategy.resource_diff_threshold
    threshold = DEFAULTS.resource_diff_threshold or 0.0 if ratio is None else ratio
    seconds = strategy.update_time_threshold_seconds
    patience_ns = (DEFAULTS.update_time_threshold_seconds or 0 if seconds is None else seconds) * SECOND
    due = synced_ns is None or now_ns - synced_ns > patience_ns
    after = []
    for zone in zones:
        resources = [dict(each) for each in zone.get("resources") or ()]
        own = found.get(zone.get("name", ""))
        if own is None:
            due |= any(_nonzero(each) for each in resources if each.get("name") in (batch.CPU, batch.MEMORY))
        else:
            due |= _replace(resources, own, threshold, ratio_of(ratio_text))
        after.append(dict(zone) | {"resources": resources})
    return Write(after, due)


def _replace(resources: list[dict[str, Any]], own: Batch, threshold: float, ratio: float) -> bool:
    cpu = mul_milli(own.cpu * NANO, ratio) if ratio > 1 else own.cpu * NANO
    changed = False
    for name, size in ((batch.CPU, cpu), (batch.MEMORY, own.memory)):
        text = quantity_text(size, Notation.DECIMAL)
        there = next((each for each in resources if each.get("name") == name), None)
        if there is None:
            resources.append({"name": name} | dict.fromkeys(FIELDS, text))
            resources.sort(key=lambda each: str(each.get("name", "")))
            changed = True
            continue
        for field in FIELDS:
            if differs(_nanos(there, field), size, threshold):
                there[field] = text
                changed = True
    return changed


def _nonzero(resource: Mapping[str, Any]) -> bool:
    return any(_nanos(resource, field) for field in FIELDS)


def _nanos(resource: Mapping[str, Any], field: str) -> int:
    try:
        return nanos(str(resource.get(field, "0")))
    except BadQuantity:
        return 0
