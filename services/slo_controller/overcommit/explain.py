"""How a node's batch and mid resources came about, step by step, from the event that says so. Nothing is computed anew."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from services.slo_controller.overcommit import batch_resources, mid_resources
from shared.events.slo import MidTerms, NodeOvercommitted, Waterfall


class Step(msgspec.Struct, frozen=True):
    """One line: what it is, its sign, its amount, and a word about it.

    Attributes:
        sign: `` for the first, `-` taken off, `+` added, `=` what remains, `<` at most, `>` at least.
    """

    name: str
    sign: str
    amount: int
    remark: str = ""


class Explained(msgspec.Struct, frozen=True):
    """One resource of a node.

    Attributes:
        quantity: as it is written; None: it is taken away.
        adds_up: whether the steps give the amount.
    """

    resource: str
    quantity: str | None
    steps: tuple[Step, ...] = ()
    adds_up: bool = True


class _Of(NamedTuple):
    resource: str
    terms: Waterfall | MidTerms | None


def explain(decided: NodeOvercommitted) -> tuple[Explained, ...]:
    """Each of the four resources."""
    parts = (
        _Of(batch_resources.CPU, decided.batch_cpu),
        _Of(batch_resources.MEMORY, decided.batch_memory),
        _Of(mid_resources.CPU, decided.mid_cpu),
        _Of(mid_resources.MEMORY, decided.mid_memory),
    )
    return tuple(_explained(part, decided) for part in parts)


def _explained(part: _Of, decided: NodeOvercommitted) -> Explained:
    quantity = decided.amounts.get(part.resource)
    if part.terms is None:
        return Explained(part.resource, quantity, adds_up=quantity is None)
    if isinstance(part.terms, MidTerms):
        return Explained(part.resource, quantity, tuple(_mid(part.terms)), _mid_holds(part.terms))
    return Explained(
        part.resource,
        quantity,
        tuple(_fall(part, decided.ratio)),
        _holds(part.terms, cpu=part.resource == batch_resources.CPU),
    )


def _fall(part: _Of, ratio: str) -> Iterator[Step]:
    fall = part.terms
    assert isinstance(fall, Waterfall)
    yield Step("capacity", "", fall.capacity)
    yield Step("margin", "-", fall.margin, f"protected: {_percent(fall.margin, fall.capacity)} of the capacity")
    if fall.policy == batch_resources.REQUEST:
        yield Step("reserved", "-", fall.reserved, "kept back by the kubelet or the node's annotation")
    else:
        remark = f"used beside pods {fall.system}, reserved {fall.reserved}: the larger"
        yield Step("system", "-", max(fall.system, fall.reserved), remark)
    words = {
        batch_resources.REQUEST: "asked for",
        batch_resources.MAX_USAGE_REQUEST: "asked for or used, whichever is more,",
    }
    yield Step("pods", "-", fall.pods, f"{words.get(fall.policy, 'used')} by pods above batch")
    yield Step("left", "=", fall.left, f"policy {fall.policy}" + ("; not below 0" if not fall.left else ""))
    for name, sign, size in (("limit", "<", fall.limit), ("floor", ">", fall.floor), ("cap", "<", fall.cap)):
        if size is not None:
            yield Step(name, sign, size)
    if part.resource == batch_resources.CPU and fall.amplified != bounded(fall):
        yield Step("amplified", "=", fall.amplified, f"cpu normalization ratio {ratio}")
    if fall.third_parties:
        yield Step("third parties", "-", fall.third_parties, "sold by others already")
    yield Step(part.resource, "=", fall.amount)


def _mid(terms: MidTerms) -> Iterator[Step]:
    yield Step("reclaimable", "", terms.base, "predicted not to be needed by prod pods, and not used")
    yield Step("unallocated", "+", terms.unallocated, "share of what prod pods have not asked for")
    yield Step("limit", "<", terms.limit)
    yield Step("mid", "=", terms.amount)


def bounded(fall: Waterfall) -> int:
    """What is left within limit, floor and cap; before amplification and third parties."""
    size = fall.left if fall.limit is None else min(fall.left, fall.limit)
    size = size if fall.floor is None else max(size, fall.floor)
    return size if fall.cap is None else min(size, fall.cap)


def _holds(fall: Waterfall, *, cpu: bool) -> bool:
    """Whether the terms give the amount; each is rounded by itself, so that the last unit may differ."""
    beside = fall.reserved if fall.policy == batch_resources.REQUEST else max(fall.system, fall.reserved)
    left = max(fall.capacity - fall.margin - beside - fall.pods, 0)
    sold = fall.amplified if cpu else bounded(fall)
    amount = max(sold - fall.third_parties, 0)
    amplified = fall.amplified >= bounded(fall) - 4
    return abs(left - fall.left) <= 4 and abs(amount - fall.amount) <= 4 and amplified


def _mid_holds(terms: MidTerms) -> bool:
    static = terms.base == terms.unallocated == 0
    return terms.amount <= terms.limit if static else terms.amount == min(terms.base + terms.unallocated, terms.limit)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0"
