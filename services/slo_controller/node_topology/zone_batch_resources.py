"""Batch resources by NUMA zone, as they are written to a NodeResourceTopology.

Source: spec/slo-controller.md 4.7; upstream pkg/slo-controller/noderesource/plugins/batchresource.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.overcommit import batch_resources
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import parse_ratio
from services.slo_controller.overcommit.batch_resources import BatchResources
from services.slo_controller.overcommit.change_threshold import differs
from shared.domain.cpu_memory import mul_milli
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.kube.quantity_text import Notation, quantity_text
from shared.kube.slo_config import ColocationStrategy

FIELDS = ("capacity", "allocatable", "available")

Zones = Sequence[Mapping[str, Any]]
"""The zones of the object as the API has them."""


def has_zones(zones: Zones) -> bool:
    """Reports whether a zone lists cpu or memory; a topology without either is ignored."""
    return any(each.get("name") in ("cpu", "memory") for zone in zones for each in zone.get("resources") or ())


def with_batch(
    zones: Zones, found: Mapping[str, BatchResources], strategy: ColocationStrategy, ratio_text: str | None
) -> list[dict[str, Any]]:
    """Returns the zones with their batch resources.

    A number is replaced when it changed by more than `resourceDiffThreshold`; a zone that was not calculated keeps its
    numbers (quirk Q3).

    Args:
        found: name of a zone -> its batch resources.
        ratio_text: the cpu normalization ratio; above 1 it raises batch-cpu.
    """
    ratio = strategy.resource_diff_threshold
    threshold = DEFAULTS.resource_diff_threshold or 0.0 if ratio is None else ratio
    after = []
    for zone in zones:
        whole = dict(zone)
        if (own := found.get(zone.get("name", ""))) is not None:
            whole["resources"] = _replaced(zone.get("resources") or (), own, threshold, parse_ratio(ratio_text))
        after.append(whole)
    return after


def _replaced(before: Zones, own: BatchResources, threshold: float, ratio: float) -> list[dict[str, Any]]:
    cpu = mul_milli(own.cpu * NANO, ratio) if ratio > 1 else own.cpu * NANO
    resources = [dict(each) for each in before]
    for name, size in ((batch_resources.CPU, cpu), (batch_resources.MEMORY, own.memory)):
        text = quantity_text(size, Notation.DECIMAL)
        present = next((each for each in resources if each.get("name") == name), None)
        if present is None:
            resources.append({"name": name} | dict.fromkeys(FIELDS, text))
            resources.sort(key=lambda each: str(each.get("name", "")))
            continue
        for field in FIELDS:
            if differs(_nanos(present, field), size, threshold):
                present[field] = text
    return resources


def _nanos(resource: Mapping[str, Any], field: str) -> int:
    try:
        return nanos(str(resource.get(field, "0")))
    except BadQuantity:
        return 0
