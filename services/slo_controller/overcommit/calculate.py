"""The calculation of one node: from its capacity to its batch and mid resources.

A node is calculated whenever anything about it changes, and most calculations change nothing. So this module computes
numbers alone, and `decision_event` builds the event with all terms only when an amount changes.

Source: spec/slo-controller.md 3.3, 4, 5, 6, appendix B.
"""

from typing import NamedTuple

from services.slo_controller.config.colocation_strategy import is_overcommitted
from services.slo_controller.config.slo_configmap import ActiveConfig
from services.slo_controller.overcommit import batch_resources, noderesource_plugin_problems
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import (
    NodeExtendedResources,
    extended_resources,
    third_party_amounts,
)
from services.slo_controller.overcommit.batch_resources import BatchResources, calculate_batch, formula_terms
from services.slo_controller.overcommit.cap_and_freeze_without_reports import at_most, requested_amounts
from services.slo_controller.overcommit.configured_floor_and_cap import bounded
from services.slo_controller.overcommit.cpu_normalization import RatioError, normalization_ratio
from services.slo_controller.overcommit.device_resources import DeviceAmounts, device_amounts
from services.slo_controller.overcommit.mid_resources import STATIC, MidResources, calculate_mid
from services.slo_controller.overcommit.noderesource_plugin_problems import PluginProblem
from services.slo_controller.overcommit.report_expiry import is_degraded
from services.slo_controller.overcommit.resource_amplification import amplification_ratios
from services.slo_controller.settings import SloSettings
from services.slo_controller.state.slo_state import SloState
from shared.kube.slo_config import ColocationStrategy

ACTIVE, OFF, DEGRADED, FROZEN = "", "off", "degraded", "frozen"


class NodeCalculation(NamedTuple):
    """The result of calculating a node.

    Attributes:
        mode: ACTIVE, OFF, DEGRADED, or FROZEN: many nodes are silent.
        report_ns, source: instant and source of the usage report that it is based on.
        batch: batch resources by the formulas; None if OFF or DEGRADED.
        bounded_batch: raised to the floor and limited by the cap.
        ratio: the cpu normalization ratio; None when it is unknown, or overcommitment is off.
        amplification: text of the amplification annotation; None: the annotation is removed.
        problems: inputs that could not be read.
    """

    mode: str
    strategy: ColocationStrategy
    report_ns: int
    source: str
    batch: BatchResources | None
    bounded_batch: BatchResources | None
    mid: MidResources | None
    ratio: str | None
    amplification: str | None
    extended_resources: NodeExtendedResources
    devices: DeviceAmounts
    problems: tuple[PluginProblem, ...]


def calculate(state: SloState, config: ActiveConfig, name: str, settings: SloSettings, now_ns: int) -> NodeCalculation:
    """Calculates an existing node."""
    node, resources = state.nodes[name], state.node_resources(name)
    strategy = config.strategy(node.metadata)
    report, source = state.usage_report(name)
    problems: list[PluginProblem] = []
    batch = calculated_mid = ratio = amplification = None
    mode = ACTIVE
    if not is_overcommitted(config.documents.colocation, strategy):
        mode = OFF
    elif is_degraded(report, strategy, now_ns) and not (state.frozen and report.has_node and name in state.decided):
        mode = DEGRADED
        if strategy.mid_reclaim_mode == STATIC and not is_degraded(report._replace(has_node=True), strategy, now_ns):
            # The static share does not depend on usage, so a recent report without a part about the node is enough.
            calculated_mid = calculate_mid(
                resources.capacity, resources.reserved, report, state.usage_sums(name), strategy
            )
    else:
        mode = FROZEN if is_degraded(report, strategy, now_ns) else ACTIVE
        usage_sums, zones = state.usage_sums(name), state.zones(name)
        terms = formula_terms(resources.capacity, resources.reserved, report, usage_sums, strategy)
        batch = calculate_batch(terms, strategy, zones, usage_sums)
        calculated_mid = calculate_mid(resources.capacity, resources.reserved, report, usage_sums, strategy)
    bounded_batch = bounded(batch, strategy, problems)
    if mode != OFF:
        topology = state.topologies.get(name)
        try:
            annotations = topology.annotations if topology else None
            ratio = normalization_ratio(config.documents.normalization, node.metadata, annotations)
        except RatioError as error:
            problems.append(
                PluginProblem(
                    noderesource_plugin_problems.NORMALIZATION, noderesource_plugin_problems.CALCULATE, str(error)
                )
            )
        try:
            amplification = amplification_ratios(config.documents.amplification, node.metadata)
        except RatioError as error:
            problems.append(
                PluginProblem(
                    noderesource_plugin_problems.AMPLIFICATION, noderesource_plugin_problems.CALCULATE, str(error)
                )
            )
    patch = _without_reports(state, name, mode, extended_resources(node, bounded_batch, calculated_mid, ratio))
    if patch.problem:
        problems.append(
            PluginProblem(noderesource_plugin_problems.BATCH, noderesource_plugin_problems.PREPARE, patch.problem)
        )
    devices = device_amounts(state.devices.get(name), shared=settings.shared_gpus)
    return NodeCalculation(
        mode, strategy, report.at_ns, source, batch, bounded_batch, calculated_mid, ratio, amplification, patch, devices,
        tuple(problems),
    )  # fmt: skip


def _without_reports(state: SloState, name: str, mode: str, patch: NodeExtendedResources) -> NodeExtendedResources:
    """Returns the amounts of a node whose reports stopped: none rises, and after their expiry no further pod fits."""
    if mode not in (DEGRADED, FROZEN):
        return patch
    before = state.decided.get(name)
    limits = patch.amounts if mode == FROZEN else requested_amounts(state.pods.as_of(name, 0))
    kept = at_most(before, limits)
    if mode == DEGRADED:  # the static share of mid resources does not depend on reports
        kept |= {each: size for each, size in patch.amounts.items() if size is not None}
    cpu, memory = kept[batch_resources.CPU], kept[batch_resources.MEMORY]
    if cpu is None or memory is None:
        return patch._replace(amounts=kept)
    allocated = third_party_amounts(state.nodes[name])
    return patch._replace(amounts=kept, origin=(cpu + allocated[0], memory + allocated[1]))
