"""Batch resources: the part of a node that high-priority pods leave, overcommitted to batch pods.

    usage    : max( capacity - margin - max(system, reserved) - used by high-priority pods,    0 )
    request  : max( capacity - margin -             reserved  - requested by them,             0 )
    maxUsage : max( capacity - margin - max(system, reserved) - max(requested, used) of them,  0 )

Requests of pods that came after the report are subtracted as well, beyond the margin: see `unreported_pods`.

Source: spec/slo-controller.md 4; upstream pkg/slo-controller/noderesource/plugins/batchresource.
"""

from functools import lru_cache
from typing import NamedTuple

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.overcommit.node_capacity_and_reservation import amount_of
from services.slo_controller.overcommit.unreported_pods import beyond_margin
from services.slo_controller.overcommit.usage_sums import PodSums, UsageSums
from services.slo_controller.state.usage_report import BATCH_BAND, UsageReport
from shared.domain.cpu_memory import ZERO, Amount, mul_int, mul_milli, reserve_ratio, scaled
from shared.kube.node_resource_topology import Zone
from shared.kube.quantity import milli
from shared.kube.slo_config import ColocationStrategy

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"

USAGE, REQUEST, MAX_USAGE_REQUEST = "usage", "request", "maxUsageRequest"


class FormulaTerms(NamedTuple):
    """The terms that a formula subtracts from a capacity, in the order in which `koord explain node` prints them.

    Attributes:
        margin: protected by the reclaim percentages; negative beyond 100 %.
        system: used outside of pods, host applications above batch included.
        unreported: requested by pods that came after the report, beyond the margin.
    """

    capacity: Amount
    margin: Amount
    system: Amount
    reserved: Amount
    sums: PodSums
    unreported: Amount = ZERO


class BatchResources(NamedTuple):
    """Batch resources of a node or of a zone.

    Attributes:
        cpu: milli-cores, which are the whole units of batch-cpu in the API.
        memory: nano-bytes; a zone's may have thousandths of bytes.
        terms: the inputs of the formula.
        zones: by zone name.
    """

    cpu: int
    memory: int
    terms: FormulaTerms
    zones: dict[str, "BatchResources"]


def formula_terms(
    capacity: Amount, reserved: Amount, report: UsageReport, usage_sums: UsageSums, of: ColocationStrategy
) -> FormulaTerms:
    """Collects the terms of a whole node."""
    system = report.system
    if report.applications:
        system = system.plus(report.applications_above(BATCH_BAND))
    margin = margin_of(capacity, of)
    unreported = beyond_margin(usage_sums.unreported, margin)
    return FormulaTerms(capacity, margin, system, reserved, usage_sums.node, unreported)


def margin_of(capacity: Amount, strategy: ColocationStrategy) -> Amount:
    """Returns the part of a capacity that the reclaim percentages protect."""
    cpu, memory = strategy.cpu_reclaim_threshold_percent, strategy.memory_reclaim_threshold_percent
    if cpu is None:
        cpu = DEFAULTS.cpu_reclaim_threshold_percent or 0
    if memory is None:
        memory = DEFAULTS.memory_reclaim_threshold_percent or 0
    return _margin(capacity, cpu, memory)


@lru_cache(maxsize=4096)  # a fleet has few sizes of machines
def _margin(capacity: Amount, cpu: int, memory: int) -> Amount:
    return scaled(capacity, reserve_ratio(cpu), reserve_ratio(memory))


def calculate_batch(
    terms: FormulaTerms, strategy: ColocationStrategy, zones: tuple[Zone, ...], usage_sums: UsageSums
) -> BatchResources:
    """Calculates the batch resources of a node and of its zones.

    The policy `request` for cpu means `usage` (quirk Q2). A limit in percent is relative to the capacity.
    """
    cpu, memory = _chosen(terms, strategy)
    return BatchResources(
        cpu, memory, terms, calculate_zones(terms, strategy, zones, usage_sums) if usage_sums.zones else {}
    )


def calculate_zones(
    terms: FormulaTerms, strategy: ColocationStrategy, zones: tuple[Zone, ...], usage_sums: UsageSums
) -> dict[str, "BatchResources"]:
    """Applies the formulas to each zone's allocatable, with an equal part of system and reserved. Source: 4.7."""
    system, reserved = terms.system.divided(len(zones)), terms.reserved.divided(len(zones))
    found = {}
    for zone, sums in zip(zones, usage_sums.zones, strict=True):
        capacity = amount_of({each.name: each.allocatable for each in zone.resources})
        own = FormulaTerms(capacity, margin_of(capacity, strategy), system, reserved, sums)
        cpu, memory = _chosen(own, strategy)
        found[zone.name] = BatchResources(cpu, memory, own, {})
    return found


def _chosen(terms: FormulaTerms, strategy: ColocationStrategy) -> tuple[int, int]:
    """Returns (milli-cores, nano-bytes) by the strategy's policies and limits."""
    cpu = remaining(terms, cpu_policy(strategy), 0)
    memory = remaining(terms, memory_policy(strategy), 1)
    if (percent := strategy.batch_cpu_threshold_percent) is not None:
        cpu = min(cpu, mul_milli(terms.capacity.cpu, percent / 100))
    if (percent := strategy.batch_memory_threshold_percent) is not None:
        memory = min(memory, mul_int(terms.capacity.memory, percent / 100))
    return milli(cpu), memory


def cpu_policy(strategy: ColocationStrategy) -> str:
    """Returns the policy in force for cpu."""
    return MAX_USAGE_REQUEST if strategy.cpu_calculate_policy == MAX_USAGE_REQUEST else USAGE


def memory_policy(strategy: ColocationStrategy) -> str:
    """Returns the policy in force for memory."""
    policy = strategy.memory_calculate_policy
    return policy if policy is not None and policy in (REQUEST, MAX_USAGE_REQUEST) else USAGE


def remaining(terms: FormulaTerms, policy: str, index: int) -> int:
    """Returns the cpu (index 0) or memory (index 1) that a policy leaves, in nanos."""
    free = terms.capacity[index] - terms.margin[index] - terms.unreported[index]
    reserved = terms.reserved[index]
    if policy == REQUEST:
        rest = free - reserved - terms.sums.request[index]
    else:
        system = terms.system[index]
        sums = terms.sums.max if policy == MAX_USAGE_REQUEST else terms.sums.used
        rest = free - (max(reserved, system)) - sums[index]
    return max(0, rest)
