"""One pass over a node: from its capacity to what it sells again.

A pass is made of every node whenever anything about it changes, and most passes change nothing: so it computes numbers alone, and the event
with its terms is made (`outcome`) only when something is to be said.

Source: spec/slo-controller.md 3.3, 4, 5, 6, appendix B.
"""

from typing import NamedTuple

from services.slo_controller.config.colocation_strategy import sells
from services.slo_controller.config.slo_configmap import InForce
from services.slo_controller.overcommit import plugin_names
from services.slo_controller.overcommit.batch_resources import Batch, batch_of, terms_of
from services.slo_controller.overcommit.change_threshold import is_degraded
from services.slo_controller.overcommit.cpu_normalization import NoRatio, amplification_ratios, normalization_ratio
from services.slo_controller.overcommit.device_resources import DeviceAmounts, device_amounts
from services.slo_controller.overcommit.mid_resources import STATIC, Mid, mid_of
from services.slo_controller.overcommit.node_patch import Prepared, prepared
from services.slo_controller.overcommit.plugin_names import Trouble
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import SloState
from shared.kube.quantity import BadQuantity, milli, nanos
from shared.kube.slo_config import ColocationStrategy

SELLING, OFF, DEGRADED = "", "off", "degraded"


class Pass(NamedTuple):
    """What a pass over a node found.

    Attributes:
        doing: SELLING, OFF or DEGRADED.
        report_ns, source: whose report it rests on.
        found: batch resources by the formulas; None when nothing is sold.
        sold: raised to the floor and cut to the cap.
        ratio: the cpu normalization ratio; None when it cannot be told, or over-commitment is off.
        amplification: text of the annotation; None: it must be gone.
        troubles: what could not be read or told.
    """

    doing: str
    strategy: ColocationStrategy
    report_ns: int
    source: str
    found: Batch | None
    sold: Batch | None
    mid: Mid | None
    ratio: str | None
    amplification: str | None
    prepared: Prepared
    devices: DeviceAmounts
    troubles: tuple[Trouble, ...]


def calculate(state: SloState, config: InForce, name: str, settings: SloSettings, now_ns: int) -> Pass:
    """Calculates a node that is there."""
    node, machine = state.nodes[name], state.machine(name)
    strategy = config.strategy(node.metadata)
    measured, source = state.measured(name)
    troubles: list[Trouble] = []
    found = found_mid = ratio = amplification = None
    doing = SELLING
    if not sells(config.documents.colocation, strategy):
        doing = OFF
    elif is_degraded(measured, strategy, now_ns):
        doing = DEGRADED
        if strategy.mid_reclaim_mode == STATIC and not is_degraded(measured._replace(has_node=True), strategy, now_ns):
            # A static share needs the report's time alone.
            found_mid = mid_of(machine.capacity, machine.reserved, measured, state.books(name), strategy)
    else:
        books, zones = state.books(name), state.zones(name)
        terms = terms_of(machine.capacity, machine.reserved, measured, books, strategy)
        found = batch_of(terms, strategy, zones, books)
        found_mid = mid_of(machine.capacity, machine.reserved, measured, books, strategy)
    sold = _steadied(found, strategy, troubles)
    if doing != OFF:
        topology = state.topologies.get(name)
        try:
            annotations = topology.annotations if topology else None
            ratio = normalization_ratio(config.documents.normalization, node.metadata, annotations)
        except NoRatio as error:
            troubles.append(Trouble(plugin_names.NORMALIZATION, plugin_names.CALCULATE, str(error)))
        try:
            amplification = amplification_ratios(config.documents.amplification, node.metadata)
        except NoRatio as error:
            troubles.append(Trouble(plugin_names.AMPLIFICATION, plugin_names.CALCULATE, str(error)))
    whole = prepared(node, sold, found_mid, ratio)
    if whole.problem:
        troubles.append(Trouble(plugin_names.BATCH, plugin_names.PREPARE, whole.problem))
    devices = device_amounts(state.devices.get(name), shared=settings.shared_gpus)
    return Pass(
        doing, strategy, measured.at_ns, source, found, sold, found_mid, ratio, amplification, whole, devices,
        tuple(troubles),
    )  # fmt: skip


def _steadied(found: Batch | None, strategy: ColocationStrategy, troubles: list[Trouble]) -> Batch | None:
    """Raised to the floor and cut to the cap that the strategy states; zones stay as they were calculated."""
    steadiness = strategy.koordstream
    if found is None or steadiness is None:
        return found
    floor, cap = _bounds(steadiness.floor, "floor", troubles), _bounds(steadiness.cap, "cap", troubles)
    cpu = max(found.cpu, milli(floor.get("cpu", 0)))
    memory = max(found.memory, floor.get("memory", 0))
    if "cpu" in cap:
        cpu = min(cpu, milli(cap["cpu"]))
    if "memory" in cap:
        memory = min(memory, cap["memory"])
    return found._replace(cpu=cpu, memory=memory)


def _bounds(stated: dict[str, str] | None, name: str, troubles: list[Trouble]) -> dict[str, int]:
    found = {}
    for resource, text in (stated or {}).items():
        try:
            found[resource] = nanos(text)
        except BadQuantity as error:
            troubles.append(
                Trouble(plugin_names.BATCH, plugin_names.CALCULATE, f"koordstream.{name}.{resource}: {error}")
            )
    return found
