"""A pass over a node as an event: every term that led to its amounts, and everything the node is to say."""

from collections.abc import Callable

from services.slo_controller.overcommit import batch_resources, mid_resources
from services.slo_controller.overcommit.batch_resources import Terms, cpu_policy, left_of, memory_policy
from services.slo_controller.overcommit.calculate import Pass
from services.slo_controller.overcommit.cpu_normalization import AMPLIFICATION_RATIO, normalization_moved
from services.slo_controller.overcommit.mid_resources import Mid
from services.slo_controller.overcommit.node_patch import (
    NORMALIZATION_RATIO,
    ORIGIN,
    amplified,
    origin_text,
    ratio_of,
    text_of,
)
from shared.domain.cpu_memory import mul_int, mul_milli
from shared.events.slo import MidTerms, NodeOvercommitted, Waterfall
from shared.kube.node import Node
from shared.kube.quantity import BadQuantity, milli, nanos, value
from shared.kube.slo_config import ColocationStrategy

Unit = Callable[[int], int]
"""Nanos -> milli-cores, or bytes."""

SOLD = (batch_resources.CPU, batch_resources.MEMORY, mid_resources.CPU, mid_resources.MEMORY)


def outcome_of(node: Node, found: Pass, before: NodeOvercommitted | None, why: str, now_ns: int) -> NodeOvercommitted:
    """What is said of a node.

    Args:
        before: what was said of it last; a ratio that cannot be told, or moved within the tolerance, stays as it was, and so do labels.
    """
    whole = found.prepared
    amounts: dict[str, str | None] = {
        name: None if size is None else text_of(name, size) for name, size in whole.amounts.items()
    }
    return NodeOvercommitted(
        node=node.metadata.name,
        report_ns=found.report_ns,
        decided_ns=now_ns,
        why=why,
        source=found.source,
        ratio=found.ratio or "",
        batch_cpu=_batch_cpu(found),
        batch_memory=_batch_memory(found),
        mid_cpu=_mid(found.mid, 0),
        mid_memory=_mid(found.mid, 1),
        amounts=amounts | found.devices.amounts,
        annotations=_annotations(node, found, before),
        labels={**(before.labels if before else {}), **found.devices.labels},
        problems=tuple(trouble.text for trouble in found.troubles),
        failed={trouble.plugin: trouble.stage for trouble in found.troubles},
    )


def _annotations(node: Node, found: Pass, before: NodeOvercommitted | None) -> dict[str, str | None]:
    stated = before.annotations if before else {}
    said: dict[str, str | None] = {AMPLIFICATION_RATIO: found.amplification}
    old = stated.get(NORMALIZATION_RATIO)
    ratio = found.ratio
    if old is not None and (ratio is None or not normalization_moved(old, ratio)):
        ratio = old
    if ratio is not None:
        said[NORMALIZATION_RATIO] = ratio
    origin = origin_text(node.metadata.annotations, *found.prepared.origin)
    if origin is not None or ORIGIN in stated:
        said[ORIGIN] = stated.get(ORIGIN) if origin is None else origin
    return said


def _batch_cpu(found: Pass) -> Waterfall | None:
    if found.found is None or found.sold is None:
        return None
    percent, capacity = found.strategy.batch_cpu_threshold_percent, found.found.terms.capacity.cpu
    return _fall(
        found.found.terms,
        cpu_policy(found.strategy),
        0,
        milli,
        limit=None if percent is None else milli(mul_milli(capacity, percent / 100)),
        strategy=found.strategy,
        amplified=amplified(found.sold.cpu, ratio_of(found.ratio)),
        third_parties=value(found.prepared.third_parties[0]),
        amount=found.prepared.amounts[batch_resources.CPU] or 0,
    )


def _batch_memory(found: Pass) -> Waterfall | None:
    if found.found is None or found.sold is None:
        return None
    percent, capacity = found.strategy.batch_memory_threshold_percent, found.found.terms.capacity.memory
    return _fall(
        found.found.terms,
        memory_policy(found.strategy),
        1,
        value,
        limit=None if percent is None else value(mul_int(capacity, percent / 100)),
        strategy=found.strategy,
        amplified=value(found.sold.memory),
        third_parties=value(found.prepared.third_parties[1]),
        amount=found.prepared.amounts[batch_resources.MEMORY] or 0,
    )


def _fall(
    terms: Terms,
    policy: str,
    index: int,
    unit: Unit,
    *,
    limit: int | None,
    strategy: ColocationStrategy,
    amplified: int,
    third_parties: int,
    amount: int,
) -> Waterfall:
    sums = {batch_resources.REQUEST: terms.sums.request, batch_resources.MAX_USAGE_REQUEST: terms.sums.max}.get(
        policy, terms.sums.used
    )
    resource = ("cpu", "memory")[index]
    return Waterfall(
        capacity=unit(terms.capacity[index]),
        margin=unit(terms.margin[index]),
        system=unit(terms.system[index]),
        reserved=unit(terms.reserved[index]),
        pods=unit(sums[index]),
        policy=policy,
        left=unit(left_of(terms, policy, index)),
        limit=limit,
        floor=_stated(strategy, "floor", resource, unit),
        cap=_stated(strategy, "cap", resource, unit),
        amplified=amplified,
        third_parties=third_parties,
        amount=amount,
    )


def _stated(strategy: ColocationStrategy, name: str, resource: str, unit: Unit) -> int | None:
    stated: dict[str, str] | None = getattr(strategy.koordstream, name, None)
    if not stated or resource not in stated:
        return None
    try:
        return unit(nanos(stated[resource]))
    except BadQuantity:
        return None


def _mid(found: Mid | None, index: int) -> MidTerms | None:
    if found is None:
        return None
    return MidTerms(
        base=found.base[index],
        unallocated=found.unallocated[index],
        limit=found.limit[index],
        amount=(found.cpu, found.memory)[index],
    )
