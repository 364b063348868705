"""What is written to a node of its batch and mid resources: amplified, less what third parties have sold already.

Source: spec/slo-controller.md 4.8; upstream pkg/slo-controller/noderesource/plugins/batchresource/plugin.go, apis/slo/v1alpha1/node.go.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.slo_controller.overcommit import batch_resources, mid_resources
from services.slo_controller.overcommit.batch_resources import Batch
from services.slo_controller.overcommit.mid_resources import Mid
from shared.domain.cpu_memory import mul_milli
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


class Prepared(NamedTuple):
    """What a node must say: amounts in whole units, milli-cores of cpu and bytes of memory.

    Attributes:
        amounts: resource -> amount of capacity and allocatable; None: it must be gone.
        origin: batch-cpu and batch-memory before third parties' are taken off.
        third_parties: taken off batch resources, in nanos: cpu, memory.
        problem: why third parties' allocations were not taken off; empty when there is no problem.
    """

    amounts: dict[str, int | None]
    origin: tuple[int, int] = (0, 0)
    third_parties: tuple[int, int] = (0, 0)
    problem: str = ""


def prepared(node: Node, batch_: Batch | None, mid_: Mid | None, ratio_text: str | None) -> Prepared:
    """A node's amounts as they are written.

    Args:
        batch_, mid_: None: the resources are taken away.
        ratio_text: the cpu normalization ratio of this very calculation; above 1 it raises batch-cpu, rounded up.
    """
    amounts: dict[str, int | None] = {
        batch_resources.CPU: None,
        batch_resources.MEMORY: None,
        mid_resources.CPU: None if mid_ is None else mid_.cpu,
        mid_resources.MEMORY: None if mid_ is None else mid_.memory,
    }
    if batch_ is None:
        return Prepared(amounts)
    cpu, memory = amplified(batch_.cpu, ratio_of(ratio_text)), value(batch_.memory)
    sold, problem = _sold((node.metadata.annotations or {}).get(THIRD_PARTIES))
    amounts[batch_resources.CPU] = value(max(cpu * NANO - sold[0], 0))
    amounts[batch_resources.MEMORY] = value(max(memory * NANO - sold[1], 0))
    return Prepared(amounts, (cpu, memory), sold, problem)


def text_of(resource: str, size: int) -> str:
    """An amount as the API writes it: `25000` of cpu as `25k`, bytes as `15Gi`."""
    return count_text(size) if resource in (batch_resources.CPU, mid_resources.CPU) else bytes_text(size)


def amplified(count: int, ratio: float) -> int:
    """A whole amount by a ratio above 1, rounded up; any other ratio leaves it."""
    return value(mul_milli(count * NANO, ratio)) if ratio > 1 else count


def ratio_of(text: str | None) -> float:
    """A ratio as an annotation has it; 0 for none, and for a text that is no number."""
    try:
        return float(text) if text else 0.0
    except ValueError:
        return 0.0


def count_text(count: int) -> str:
    """A whole amount as the API writes it: `25000` as `25k`."""
    return milli_text(count * 1000)


def origin_text(annotations: Mapping[str, str] | None, cpu: int, memory: int) -> str | None:
    """The annotation with the amounts before third parties' are taken off; other entries of it stay.

    None: a node without annotations gets none (quirk Q7).
    """
    if annotations is None:
        return None
    try:
        before: Any = msgspec.json.decode(annotations.get(ORIGIN) or "{}")
        resources = before.get("resources") or {}
        kept = {name: size for name, size in resources.items() if nanos(str(size)) is not None}
    except (msgspec.DecodeError, AttributeError, BadQuantity):
        kept = {}
    kept |= {batch_resources.CPU: count_text(cpu), batch_resources.MEMORY: bytes_text(memory)}
    return json.dumps({"resources": dict(sorted(kept.items()))}, separators=(",", ":"))


def _sold(text: str | None) -> tuple[tuple[int, int], str]:
    """What third parties have sold of batch resources: (cpu, memory) in nanos, and why it cannot be read."""
    if not text:
        return (0, 0), ""
    try:
        stated = _allocations.decode(text).allocations or ()
        parts = [each.resources or {} for each in stated if each.priority == "koord-batch"]
        cpu = sum(nanos(str(part.get(batch_resources.CPU, "0"))) for part in parts)
        memory = sum(nanos(str(part.get(batch_resources.MEMORY, "0"))) for part in parts)
    except (msgspec.DecodeError, BadQuantity) as error:
        return (0, 0), f"annotation {THIRD_PARTIES} cannot be read: {error}"
    return (cpu, memory), ""
