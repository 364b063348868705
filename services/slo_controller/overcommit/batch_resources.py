"""Batch resources: what high-priority pods leave of a node, to be sold to batch pods.

    usage    : max( capacity - margin - max(system, reserved) - used by high-priority pods, 0 )
    request  : max( capacity - margin -             reserved  - asked for by them,          0 )
    maxUsage : max( capacity - margin - max(system, reserved) - max(asked, used) of them,   0 )

Source: spec/slo-controller.md 4; upstream pkg/slo-controller/noderesource/plugins/batchresource.
"""

from functools import lru_cache
from typing import NamedTuple

from services.slo_controller.config.colocation_strategy import DEFAULTS
from services.slo_controller.overcommit.node_reservation import amount_of
from services.slo_controller.overcommit.usage_sums import Books, Sums
from services.slo_controller.state.node_usage import BATCH_BAND, Measured
from shared.domain.cpu_memory import Amount, mul_int, mul_milli, reserve_ratio, scaled
from shared.kube.node_resource_topology import Zone
from shared.kube.quantity import milli
from shared.kube.slo_config import ColocationStrategy

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"

USAGE, REQUEST, MAX_USAGE_REQUEST = "usage", "request", "maxUsageRequest"


class Terms(NamedTuple):
    """What a formula takes off a capacity, in the order in which `koord node explain` prints it.

    Attributes:
        margin: protected by the reclaim percentages; negative beyond 100 %.
        system: used outside of pods, host applications above batch included.
    """

    capacity: Amount
    margin: Amount
    system: Amount
    reserved: Amount
    sums: Sums


class Batch(NamedTuple):
    """Batch resources of a node or of a zone.

    Attributes:
        cpu: milli-cores: what the API counts as whole batch-cpu.
        memory: nano-bytes; a zone's may have thousandths of bytes.
        terms: what led here.
        zones: by zone name.
    """

    cpu: int
    memory: int
    terms: Terms
    zones: dict[str, "Batch"]


def terms_of(capacity: Amount, reserved: Amount, measured: Measured, books: Books, of: ColocationStrategy) -> Terms:
    """The terms of a whole node."""
    system = measured.system
    if measured.applications:
        system = system.plus(measured.applications_above(BATCH_BAND))
    return Terms(capacity, margin_of(capacity, of), system, reserved, books.node)


def margin_of(capacity: Amount, strategy: ColocationStrategy) -> Amount:
    """What the reclaim percentages protect of a capacity."""
    cpu, memory = strategy.cpu_reclaim_threshold_percent, strategy.memory_reclaim_threshold_percent
    if cpu is None:
        cpu = DEFAULTS.cpu_reclaim_threshold_percent or 0
    if memory is None:
        memory = DEFAULTS.memory_reclaim_threshold_percent or 0
    return _margin(capacity, cpu, memory)


@lru_cache(maxsize=4096)  # a fleet has few sizes of machines
def _margin(capacity: Amount, cpu: int, memory: int) -> Amount:
    return scaled(capacity, reserve_ratio(cpu), reserve_ratio(memory))


def batch_of(terms: Terms, strategy: ColocationStrategy, zones: tuple[Zone, ...], books: Books) -> Batch:
    """The node's batch resources, and those of its zones.

    A policy `request` for cpu means usage (quirk Q2). A limit in percent is one of the capacity.
    """
    cpu, memory = _chosen(terms, strategy)
    return Batch(cpu, memory, terms, zones_of(terms, strategy, zones, books) if books.zones else {})


def zones_of(terms: Terms, strategy: ColocationStrategy, zones: tuple[Zone, ...], books: Books) -> dict[str, "Batch"]:
    """By zone: the formulas on the zone's allocatable, with an equal part of system and reserved. Source: 4.7."""
    system, reserved = terms.system.divided(len(zones)), terms.reserved.divided(len(zones))
    found = {}
    for zone, sums in zip(zones, books.zones, strict=True):
        capacity = amount_of({each.name: each.allocatable for each in zone.resources})
        own = Terms(capacity, margin_of(capacity, strategy), system, reserved, sums)
        cpu, memory = _chosen(own, strategy)
        found[zone.name] = Batch(cpu, memory, own, {})
    return found


def _chosen(terms: Terms, strategy: ColocationStrategy) -> tuple[int, int]:
    """(milli-cores, nano-bytes) by the strategy's policies and limits."""
    cpu = left_of(terms, cpu_policy(strategy), 0)
    memory = left_of(terms, memory_policy(strategy), 1)
    if (percent := strategy.batch_cpu_threshold_percent) is not None:
        cpu = min(cpu, mul_milli(terms.capacity.cpu, percent / 100))
    if (percent := strategy.batch_memory_threshold_percent) is not None:
        memory = min(memory, mul_int(terms.capacity.memory, percent / 100))
    return milli(cpu), memory


def cpu_policy(strategy: ColocationStrategy) -> str:
    """The policy that is in force for cpu."""
    return MAX_USAGE_REQUEST if strategy.cpu_calculate_policy == MAX_USAGE_REQUEST else USAGE


def memory_policy(strategy: ColocationStrategy) -> str:
    """The policy that is in force for memory."""
    stated = strategy.memory_calculate_policy
    return stated if stated is not None and stated in (REQUEST, MAX_USAGE_REQUEST) else USAGE


def left_of(terms: Terms, policy: str, index: int) -> int:
    """What remains of cpu (0) or memory (1) by a policy, in nanos."""
    free = terms.capacity[index] - terms.margin[index]
    reserved = terms.reserved[index]
    if policy == REQUEST:
        rest = free - reserved - terms.sums.request[index]
    else:
        system = terms.system[index]
        sums = terms.sums.max if policy == MAX_USAGE_REQUEST else terms.sums.used
        rest = free - (max(reserved, system)) - sums[index]
    return max(0, rest)
