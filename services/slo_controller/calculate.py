"""One pass over a node: from its capacity to what it sells again, with every term on record.

Source: spec/slo-controller.md 3.3, 4, 5, 6, appendix B.
"""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from services.slo_controller import batch
from services.slo_controller.batch import MAX_USAGE_REQUEST, REQUEST, Batch, Terms, batch_of, terms_of
from services.slo_controller.config import InForce
from services.slo_controller.devices import device_amounts
from services.slo_controller.mid import STATIC, Mid, mid_of
from services.slo_controller.prepare import NORMALIZATION_RATIO, ORIGIN, amplified, prepared, ratio_of
from services.slo_controller.ratios import AMPLIFICATION_RATIO, NoRatio, amplification_ratios, normalization_ratio
from services.slo_controller.settings import SloSettings
from services.slo_controller.state import SloState
from services.slo_controller.steady import is_degraded
from services.slo_controller.strategy import sells
from shared.domain.cpu_memory import mul_int, mul_milli
from shared.events.slo import MidTerms, NodeOvercommitted, Waterfall
from shared.kube.quantity import NANO, BadQuantity, milli, nanos, value
from shared.kube.slo_config import ColocationStrategy

Unit = Callable[[int], int]
"""Nanos -> milli-cores, or bytes."""

SELLING, OFF, DEGRADED = "", "off", "degraded"


class Pass(NamedTuple):
    """What a pass over a node found.

    Attributes:
        outcome: what is to be said of the node; `why` is left to who compares it with what was said before.
        strategy: in force on the node.
        batch: with its zones; None when nothing is sold.
        state: SELLING, OFF or DEGRADED.
    """

    outcome: NodeOvercommitted
    strategy: ColocationStrategy
    batch: Batch | None
    state: str


def calculate(state: SloState, config: InForce, name: str, settings: SloSettings, now_ns: int) -> Pass:
    """Calculate a node that is there."""
    node, machine = state.nodes[name], state.machine(name)
    strategy = config.strategy(node.metadata)
    measured, source = state.measured(name)
    problems: list[str] = []
    found, found_mid, doing = None, None, SELLING
    if not sells(config.documents.colocation, strategy):
        doing = OFF
    elif is_degraded(measured, strategy, now_ns):
        doing = DEGRADED
    else:
        books, zones = state.books(name), state.zones(name)
        terms = terms_of(machine.capacity, machine.reserved, measured, books, strategy)
        found = batch_of(terms, strategy, zones, books)
        if machine.has_allocatable:
            found_mid = mid_of(machine.capacity, machine.reserved, measured, books, strategy)
        else:
            problems.append("status.allocatable is absent: no mid resources")
    static = doing == DEGRADED and strategy.mid_reclaim_mode == STATIC and machine.has_allocatable
    if static and not is_degraded(measured._replace(has_node=True), strategy, now_ns):
        # A static share needs the report's time alone.
        found_mid = mid_of(machine.capacity, machine.reserved, measured, state.books(name), strategy)
    sold, problem = _steadied(found, strategy)
    problems += problem
    ratio = _ratio(state, config, name, problems) if doing != OFF else None
    whole = prepared(node, sold, found_mid, ratio)
    if whole.problem:
        problems.append(whole.problem)
    devices = device_amounts(state.devices.get(name), shared=settings.shared_gpus)
    annotations: dict[str, str | None] = {AMPLIFICATION_RATIO: None}
    if doing != OFF:
        try:
            annotations[AMPLIFICATION_RATIO] = amplification_ratios(config.documents.amplification, node.metadata)
        except NoRatio as error:
            problems.append(str(error))
    if ratio is not None:
        annotations[NORMALIZATION_RATIO] = ratio
    if whole.origin is not None:
        annotations[ORIGIN] = whole.origin
    speed = ratio_of(ratio)
    outcome = NodeOvercommitted(
        node=name,
        report_ns=measured.at_ns,
        decided_ns=now_ns,
        why="",
        source=source,
        ratio=ratio or "",
        batch_cpu=_cpu_fall(found, sold, strategy, speed, whole.third_parties[0], whole.amounts[batch.CPU]),
        batch_memory=_memory_fall(found, sold, strategy, whole.third_parties[1], whole.amounts[batch.MEMORY]),
        mid_cpu=_mid_terms(found_mid, 0),
        mid_memory=_mid_terms(found_mid, 1),
        amounts=whole.amounts | devices.amounts,
        annotations=annotations,
        labels=dict(devices.labels),
        problems=tuple(problems),
    )
    return Pass(outcome, strategy, sold, doing)


def _ratio(state: SloState, config: InForce, name: str, problems: list[str]) -> str | None:
    topology = state.topologies.get(name)
    try:
        return normalization_ratio(
            config.documents.normalization, state.nodes[name].metadata, topology.annotations if topology else None
        )
    except NoRatio as error:
        problems.append(str(error))
        return None


def _steadied(found: Batch | None, strategy: ColocationStrategy) -> tuple[Batch | None, list[str]]:
    """Raised to the floor and cut to the cap that the strategy states; zones stay as they were calculated."""
    steadiness = strategy.koordstream
    if found is None or steadiness is None:
        return found, []
    problems: list[str] = []
    floor, cap = (
        _bounds(stated, name, problems) for stated, name in ((steadiness.floor, "floor"), (steadiness.cap, "cap"))
    )
    cpu = max(found.cpu, milli(floor.get("cpu", 0)))
    memory = max(found.memory, floor.get("memory", 0))
    if "cpu" in cap:
        cpu = min(cpu, milli(cap["cpu"]))
    if "memory" in cap:
        memory = min(memory, cap["memory"])
    return found._replace(cpu=cpu, memory=memory), problems


def _bounds(stated: dict[str, str] | None, name: str, problems: list[str]) -> dict[str, int]:
    found = {}
    for resource, text in (stated or {}).items():
        try:
            found[resource] = nanos(text)
        except BadQuantity as error:
            problems.append(f"koordstream.{name}.{resource}: {error}")
    return found


def _cpu_fall(
    found: Batch | None, sold: Batch | None, strategy: ColocationStrategy, speed: float, third: int, amount: str | None
) -> Waterfall | None:
    if found is None or sold is None or amount is None:
        return None
    policy = MAX_USAGE_REQUEST if strategy.cpu_calculate_policy == MAX_USAGE_REQUEST else "usage"
    percent = strategy.batch_cpu_threshold_percent
    fall = _fall(found.terms, policy, 0, milli)
    return replace(
        fall,
        limit=None if percent is None else milli(mul_milli(found.terms.capacity.cpu, percent / 100)),
        floor=_stated(strategy, "floor", "cpu", milli),
        cap=_stated(strategy, "cap", "cpu", milli),
        amplified=amplified(sold.cpu, speed),
        third_parties=value(third),
        amount=nanos(amount) // NANO,
    )


def _memory_fall(
    found: Batch | None, sold: Batch | None, strategy: ColocationStrategy, third: int, amount: str | None
) -> Waterfall | None:
    if found is None or sold is None or amount is None:
        return None
    stated = strategy.memory_calculate_policy
    policy = stated if stated in (REQUEST, MAX_USAGE_REQUEST) else "usage"
    percent = strategy.batch_memory_threshold_percent
    fall = _fall(found.terms, policy, 1, value)
    return replace(
        fall,
        limit=None if percent is None else value(mul_int(found.terms.capacity.memory, percent / 100)),
        floor=_stated(strategy, "floor", "memory", value),
        cap=_stated(strategy, "cap", "memory", value),
        amplified=value(sold.memory),
        third_parties=value(third),
        amount=nanos(amount) // NANO,
    )


def _fall(terms: Terms, policy: str, index: int, unit: Unit) -> Waterfall:
    sums = {REQUEST: terms.sums.request, MAX_USAGE_REQUEST: terms.sums.max}.get(policy, terms.sums.used)
    left = terms.left()
    rest = {REQUEST: left.request, MAX_USAGE_REQUEST: left.max}.get(policy, left.used)
    return Waterfall(
        capacity=unit(terms.capacity[index]),
        margin=unit(terms.margin[index]),
        system=unit(terms.system[index]),
        reserved=unit(terms.reserved[index]),
        pods=unit(sums[index]),
        policy=policy,
        left=unit(rest[index]),
        amplified=0,
        amount=0,
    )


def _stated(strategy: ColocationStrategy, name: str, resource: str, unit: Unit) -> int | None:
    stated: dict[str, str] | None = getattr(strategy.koordstream, name, None)
    if not stated or resource not in stated:
        return None
    try:
        return unit(nanos(stated[resource]))
    except BadQuantity:
        return None


def _mid_terms(found: Mid | None, index: int) -> MidTerms | None:
    if found is None:
        return None
    return MidTerms(
        base=found.base[index],
        unallocated=found.unallocated[index],
        limit=found.limit[index],
        amount=(found.cpu, found.memory)[index],
    )
