"""The batch and mid amounts that are written to a Node: amplified, less the allocations of third parties.

Source: spec/slo-controller.md 4.8; upstream pkg/slo-controller/noderesource/plugins/batchresource/plugin.go,
apis/slo/v1alpha1/node.go.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.slo_controller.overcommit import batch_resources, mid_resources
from services.slo_controller.overcommit.batch_resources import BatchResources
from services.slo_controller.overcommit.mid_resources import MidResources
from shared.domain.cpu_memory import mul_milli
from shared.kube.json_text import decode_with, read_json
from shared.kube.node import Node
from shared.kube.quantity import NANO, BadQuantity, bytes_text, milli_text, nanos, value

ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
THIRD_PARTIES = "node.koordinator.sh/thirdPartyAllocations"
NORMALIZATION_RATIO = "node.koordinator.sh/cpu-normalization-ratio"


class _Allocation(msgspec.Struct, frozen=True):
    name: str = ""
    priority: str = ""
    resources: dict[str, str | int | float] | None = None


class _Allocations(msgspec.Struct, frozen=True):
    allocations: tuple[_Allocation, ...] | None = None


_allocations = msgspec.json.Decoder(_Allocations)


class NodeExtendedResources(NamedTuple):
    """The desired amounts of a Node, in whole units: milli-cores of cpu and bytes of memory.

    Attributes:
        amounts: resource -> amount of capacity and allocatable; None: the resource is removed.
        origin: batch-cpu and batch-memory before the subtraction of third parties' allocations.
        third_parties: subtracted from batch resources, in nanos: cpu, memory.
        problem: the reason why third parties' allocations were not subtracted; empty without one.
    """

    amounts: dict[str, int | None]
    origin: tuple[int, int] = (0, 0)
    third_parties: tuple[int, int] = (0, 0)
    problem: str = ""


def extended_resources(
    node: Node, batch: BatchResources | None, mid: MidResources | None, ratio_text: str | None
) -> NodeExtendedResources:
    """Returns a node's amounts in the written form.

    Args:
        batch, mid: None: the resources are removed.
        ratio_text: the cpu normalization ratio of the same calculation; above 1 it raises batch-cpu, rounded up.
    """
    amounts: dict[str, int | None] = {
        batch_resources.CPU: None,
        batch_resources.MEMORY: None,
        mid_resources.CPU: None if mid is None else mid.cpu,
        mid_resources.MEMORY: None if mid is None else mid.memory,
    }
    if batch is None:
        return NodeExtendedResources(amounts)
    cpu, memory = amplified(batch.cpu, parse_ratio(ratio_text)), value(batch.memory)
    allocated, problem = _third_party_allocations((node.metadata.annotations or {}).get(THIRD_PARTIES))
    amounts[batch_resources.CPU] = value(max(cpu * NANO - allocated[0], 0))
    amounts[batch_resources.MEMORY] = value(max(memory * NANO - allocated[1], 0))
    return NodeExtendedResources(amounts, (cpu, memory), allocated, problem)


def third_party_amounts(node: Node) -> tuple[int, int]:
    """Returns the batch-cpu and batch-memory that third parties have allocated, in whole units."""
    (cpu, memory), _ = _third_party_allocations((node.metadata.annotations or {}).get(THIRD_PARTIES))
    return value(cpu), value(memory)


def quantity_of(resource: str, size: int) -> str:
    """Formats an amount as the API does: `25000` of cpu as `25k`, bytes as `15Gi`."""
    return count_quantity(size) if resource in (batch_resources.CPU, mid_resources.CPU) else bytes_text(size)


def amplified(count: int, ratio: float) -> int:
    """Multiplies a whole amount by a ratio above 1, rounded up; any other ratio leaves it unchanged."""
    return value(mul_milli(count * NANO, ratio)) if ratio > 1 else count


def parse_ratio(text: str | None) -> float:
    """Reads a ratio of an annotation; 0 for none, and for a text that is no number."""
    try:
        return float(text) if text else 0.0
    except ValueError:
        return 0.0


def count_quantity(count: int) -> str:
    """Formats a whole amount as the API does: `25000` as `25k`."""
    return milli_text(count * 1000)


def origin_annotation(annotations: Mapping[str, str] | None, cpu: int, memory: int) -> str | None:
    """Returns the annotation with the amounts before the subtraction of third parties'; its other entries stay.

    None: a node without annotations gets none (quirk Q7).
    """
    if annotations is None:
        return None
    try:
        before: Any = read_json(annotations.get(ORIGIN) or "{}")
        resources = before.get("resources") or {}
        kept = {name: size for name, size in resources.items() if nanos(str(size)) is not None}
    except (msgspec.DecodeError, AttributeError, BadQuantity):
        kept = {}
    kept |= {batch_resources.CPU: count_quantity(cpu), batch_resources.MEMORY: bytes_text(memory)}
    return json.dumps({"resources": dict(sorted(kept.items()))}, separators=(",", ":"))


def _third_party_allocations(text: str | None) -> tuple[tuple[int, int], str]:
    """Reads the batch resources that third parties have allocated: (cpu, memory) in nanos, and the problem if any."""
    if not text:
        return (0, 0), ""
    try:
        allocations = decode_with(_allocations, text).allocations or ()
        parts = [each.resources or {} for each in allocations if each.priority == "koord-batch"]
        cpu = sum(nanos(str(part.get(batch_resources.CPU, "0"))) for part in parts)
        memory = sum(nanos(str(part.get(batch_resources.MEMORY, "0"))) for part in parts)
    except (msgspec.DecodeError, BadQuantity) as error:
        return (0, 0), f"annotation {THIRD_PARTIES} cannot be read: {error}"
    return (cpu, memory), ""
