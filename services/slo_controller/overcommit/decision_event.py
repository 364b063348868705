"""The event of a decision about a node: every term of its amounts, and the desired state of the Node object."""

from collections.abc import Callable

from services.slo_controller.overcommit import batch_resources, mid_resources
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import (
    NORMALIZATION_RATIO,
    ORIGIN,
    amplified,
    origin_annotation,
    parse_ratio,
    quantity_of,
)
from services.slo_controller.overcommit.batch_resources import FormulaTerms, cpu_policy, memory_policy, remaining
from services.slo_controller.overcommit.calculate import DEGRADED, NodeCalculation
from services.slo_controller.overcommit.cpu_normalization import ratio_changed
from services.slo_controller.overcommit.mid_resources import MidResources
from services.slo_controller.overcommit.resource_amplification import AMPLIFICATION_RATIO
from shared.domain.cpu_memory import mul_int, mul_milli
from shared.events.slo import MidTerms, NodeOvercommitted, OvercommitBreakdown
from shared.kube.node import REPORTS_MISSING, Node
from shared.kube.quantity import BadQuantity, milli, nanos, value
from shared.kube.slo_config import ColocationStrategy

Unit = Callable[[int], int]
"""Nanos -> milli-cores, or bytes."""

OVERCOMMITTED = (batch_resources.CPU, batch_resources.MEMORY, mid_resources.CPU, mid_resources.MEMORY)


def overcommit_event(
    node: Node, found: NodeCalculation, before: NodeOvercommitted | None, why: str, now_ns: int
) -> NodeOvercommitted:
    """Builds the event of a decision.

    Args:
        before: the newest decision about the node. Its labels stay, and so does its normalization ratio where the new
            one is unknown or within the tolerance.
    """
    patch = found.extended_resources
    amounts: dict[str, str | None] = {
        name: None if size is None else quantity_of(name, size) for name, size in patch.amounts.items()
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
        problems=tuple(problem.text for problem in found.problems),
        failed={problem.plugin: problem.stage for problem in found.problems},
    )


def _annotations(node: Node, found: NodeCalculation, before: NodeOvercommitted | None) -> dict[str, str | None]:
    written = before.annotations if before else {}
    annotations: dict[str, str | None] = {AMPLIFICATION_RATIO: found.amplification}
    old = written.get(NORMALIZATION_RATIO)
    ratio = found.ratio
    if old is not None and (ratio is None or not ratio_changed(old, ratio)):
        ratio = old
    if ratio is not None:
        annotations[NORMALIZATION_RATIO] = ratio
    if found.mode == DEGRADED and found.extended_resources.amounts[batch_resources.CPU] is not None:
        annotations[REPORTS_MISSING] = "true"
    elif REPORTS_MISSING in written:
        annotations[REPORTS_MISSING] = None
    origin = origin_annotation(node.metadata.annotations, *found.extended_resources.origin)
    if origin is not None or ORIGIN in written:
        annotations[ORIGIN] = written.get(ORIGIN) if origin is None else origin
    return annotations


def _batch_cpu(found: NodeCalculation) -> OvercommitBreakdown | None:
    if found.batch is None or found.bounded_batch is None:
        return None
    percent, capacity = found.strategy.batch_cpu_threshold_percent, found.batch.terms.capacity.cpu
    return _breakdown(
        found.batch.terms,
        cpu_policy(found.strategy),
        0,
        milli,
        limit=None if percent is None else milli(mul_milli(capacity, percent / 100)),
        strategy=found.strategy,
        amplified=amplified(found.bounded_batch.cpu, parse_ratio(found.ratio)),
        third_parties=value(found.extended_resources.third_parties[0]),
        amount=found.extended_resources.amounts[batch_resources.CPU] or 0,
    )


def _batch_memory(found: NodeCalculation) -> OvercommitBreakdown | None:
    if found.batch is None or found.bounded_batch is None:
        return None
    percent, capacity = found.strategy.batch_memory_threshold_percent, found.batch.terms.capacity.memory
    return _breakdown(
        found.batch.terms,
        memory_policy(found.strategy),
        1,
        value,
        limit=None if percent is None else value(mul_int(capacity, percent / 100)),
        strategy=found.strategy,
        amplified=value(found.bounded_batch.memory),
        third_parties=value(found.extended_resources.third_parties[1]),
        amount=found.extended_resources.amounts[batch_resources.MEMORY] or 0,
    )


def _breakdown(
    terms: FormulaTerms,
    policy: str,
    index: int,
    unit: Unit,
    *,
    limit: int | None,
    strategy: ColocationStrategy,
    amplified: int,
    third_parties: int,
    amount: int,
) -> OvercommitBreakdown:
    sums = {batch_resources.REQUEST: terms.sums.request, batch_resources.MAX_USAGE_REQUEST: terms.sums.max}.get(
        policy, terms.sums.used
    )
    resource = ("cpu", "memory")[index]
    return OvercommitBreakdown(
        capacity=unit(terms.capacity[index]),
        margin=unit(terms.margin[index]),
        system=unit(terms.system[index]),
        reserved=unit(terms.reserved[index]),
        pods=unit(sums[index]),
        policy=policy,
        left=unit(remaining(terms, policy, index)),
        limit=limit,
        floor=_configured(strategy, "floor", resource, unit),
        cap=_configured(strategy, "cap", resource, unit),
        amplified=amplified,
        third_parties=third_parties,
        amount=amount,
        unreported=unit(terms.unreported[index]),
    )


def _configured(strategy: ColocationStrategy, name: str, resource: str, unit: Unit) -> int | None:
    quantities: dict[str, str] | None = getattr(strategy.koordstream, name, None)
    if not quantities or resource not in quantities:
        return None
    try:
        return unit(nanos(quantities[resource]))
    except BadQuantity:
        return None


def _mid(found: MidResources | None, index: int) -> MidTerms | None:
    if found is None:
        return None
    return MidTerms(
        base=found.base[index],
        unallocated=found.unallocated[index],
        limit=found.limit[index],
        amount=(found.cpu, found.memory)[index],
    )
