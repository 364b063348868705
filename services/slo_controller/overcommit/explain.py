"""Explanation of a node's batch and mid resources, step by step, from the recorded event. Nothing is recomputed."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from services.slo_controller.overcommit import batch_resources, mid_resources
from shared.events.slo import MidTerms, NodeOvercommitted, OvercommitBreakdown
from shared.kube.quantity import nanos, value


class Step(msgspec.Struct, frozen=True):
    """One line of an explanation: name, sign, amount and remark.

    Attributes:
        sign: empty for the first, `-` subtracted, `+` added, `=` result, `<` at most, `>` at least.
    """

    name: str
    sign: str
    amount: int
    remark: str = ""


class ResourceExplanation(msgspec.Struct, frozen=True):
    """The explanation of one resource of a node.

    Attributes:
        quantity: the written quantity; None: the resource is removed.
        adds_up: the steps result in the amount.
    """

    resource: str
    quantity: str | None
    steps: tuple[Step, ...] = ()
    adds_up: bool = True


class _Resource(NamedTuple):
    resource: str
    terms: OvercommitBreakdown | MidTerms | None


def explain(decided: NodeOvercommitted) -> tuple[ResourceExplanation, ...]:
    """Explains each of the four resources."""
    parts = (
        _Resource(batch_resources.CPU, decided.batch_cpu),
        _Resource(batch_resources.MEMORY, decided.batch_memory),
        _Resource(mid_resources.CPU, decided.mid_cpu),
        _Resource(mid_resources.MEMORY, decided.mid_memory),
    )
    return tuple(_explained(part, decided) for part in parts)


def _explained(part: _Resource, decided: NodeOvercommitted) -> ResourceExplanation:
    quantity = decided.amounts.get(part.resource)
    if part.terms is None:
        kept = (
            () if quantity is None else (Step("kept", "=", value(nanos(quantity)), "requested when reports stopped"),)
        )
        return ResourceExplanation(part.resource, quantity, kept)
    if isinstance(part.terms, MidTerms):
        return ResourceExplanation(part.resource, quantity, tuple(_mid_steps(part.terms)), _mid_adds_up(part.terms))
    return ResourceExplanation(
        part.resource,
        quantity,
        tuple(_breakdown_steps(part, decided.ratio)),
        _adds_up(part.terms, cpu=part.resource == batch_resources.CPU),
    )


def _breakdown_steps(part: _Resource, ratio: str) -> Iterator[Step]:
    breakdown = part.terms
    assert isinstance(breakdown, OvercommitBreakdown)
    yield Step("capacity", "", breakdown.capacity)
    yield Step(
        "margin", "-", breakdown.margin, f"protected: {_percent(breakdown.margin, breakdown.capacity)} of the capacity"
    )
    if breakdown.policy == batch_resources.REQUEST:
        yield Step("reserved", "-", breakdown.reserved, "reserved by the kubelet or the node's annotation")
    else:
        remark = f"used outside of pods {breakdown.system:,}, reserved {breakdown.reserved:,}: the larger"
        yield Step("system", "-", max(breakdown.system, breakdown.reserved), remark)
    words = {
        batch_resources.REQUEST: "requested",
        batch_resources.MAX_USAGE_REQUEST: "requested or used, whichever is more,",
    }
    yield Step("pods", "-", breakdown.pods, f"{words.get(breakdown.policy, 'used')} by pods above batch")
    if breakdown.unreported:
        yield Step("unreported", "-", breakdown.unreported, "requested by pods since the report, beyond the margin")
    yield Step(
        "left", "=", breakdown.left, f"policy {breakdown.policy}" + ("; not below 0" if not breakdown.left else "")
    )
    for name, sign, size in (
        ("limit", "<", breakdown.limit),
        ("floor", ">", breakdown.floor),
        ("cap", "<", breakdown.cap),
    ):
        if size is not None:
            yield Step(name, sign, size)
    if part.resource == batch_resources.CPU and breakdown.amplified != bounded(breakdown):
        yield Step("amplified", "=", breakdown.amplified, f"cpu normalization ratio {ratio}")
    if breakdown.third_parties:
        yield Step("third parties", "-", breakdown.third_parties, "already allocated by third parties")
    yield Step(part.resource, "=", breakdown.amount)


def _mid_steps(terms: MidTerms) -> Iterator[Step]:
    yield Step("reclaimable", "", terms.base, "predicted not to be needed by prod pods, and not used")
    yield Step("unallocated", "+", terms.unallocated, "share of the capacity that prod pods have not requested")
    yield Step("limit", "<", terms.limit)
    yield Step("mid", "=", terms.amount)


def bounded(breakdown: OvercommitBreakdown) -> int:
    """Applies limit, floor and cap to the remainder; before amplification and third parties' allocations."""
    size = breakdown.left if breakdown.limit is None else min(breakdown.left, breakdown.limit)
    if breakdown.floor is not None:
        size = max(size, min(breakdown.floor, breakdown.capacity - breakdown.reserved))
    return size if breakdown.cap is None else min(size, breakdown.cap)


def _adds_up(breakdown: OvercommitBreakdown, *, cpu: bool) -> bool:
    """Reports whether the terms result in the amount. Each is rounded by itself, so the last unit may differ."""
    outside = (
        breakdown.reserved if breakdown.policy == batch_resources.REQUEST else max(breakdown.system, breakdown.reserved)
    )
    left = max(breakdown.capacity - breakdown.margin - outside - breakdown.pods - breakdown.unreported, 0)
    size = breakdown.amplified if cpu else bounded(breakdown)
    amount = max(size - breakdown.third_parties, 0)
    is_raised = breakdown.amplified >= bounded(breakdown) - 4
    return abs(left - breakdown.left) <= 4 and abs(amount - breakdown.amount) <= 4 and is_raised


def _mid_adds_up(terms: MidTerms) -> bool:
    static = terms.base == terms.unallocated == 0
    return terms.amount <= terms.limit if static else terms.amount == min(terms.base + terms.unallocated, terms.limit)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0"
