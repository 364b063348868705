"""Runs the domain `overcommit`: the strategy of a node, the difference test, and passes over a node."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.slo_controller.recorded_node import RecordedNode
from cli.parity.runners.slo_controller.zones import zones_after
from services.slo_controller.config.colocation_strategy import effective_strategy, first_invalid_field
from services.slo_controller.overcommit import batch_resources, mid_resources, noderesource_plugin_problems
from services.slo_controller.overcommit.batch_and_mid_amounts_written_to_node import ORIGIN
from services.slo_controller.overcommit.batch_resources import BatchResources
from services.slo_controller.overcommit.calculate import DEGRADED, NodeCalculation
from services.slo_controller.overcommit.change_threshold import any_changed
from services.slo_controller.overcommit.decision_event import overcommit_event
from services.slo_controller.overcommit.mid_resources import STATIC, MidResources
from services.slo_controller.overcommit.report_expiry import is_degraded
from shared.events.slo import NodeOvercommitted
from shared.kube.instants import instant_ns
from shared.kube.json_text import json_value
from shared.kube.meta import Metadata
from shared.kube.quantity import NANO, milli, nanos, value
from shared.kube.slo_config import ColocationConfig, ColocationStrategy

Given = Mapping[str, Any]

BATCH = (batch_resources.CPU, batch_resources.MEMORY)
MID = (mid_resources.CPU, mid_resources.MEMORY)


def answer(op: str, given: Given) -> dict[str, Any]:
    """Runs one case."""
    match op:
        case "need_sync":
            strategy = msgspec.convert(given["strategy"], ColocationStrategy)
            old, new = (given[name]["status"].get("allocatable") or {} for name in ("oldNode", "newNode"))
            return _need_sync(old, new, strategy)
        case "effective_strategy":
            config = msgspec.convert(given["config"], ColocationConfig)
            strategy = effective_strategy(config, msgspec.convert(given["node"]["metadata"], Metadata))
            whole = json_value(strategy)
            return {"strategy": whole, "valid": first_invalid_field(strategy) is None}
    return calculate(given)


def _need_sync(old: Mapping[str, str], new: Mapping[str, str], strategy: ColocationStrategy) -> dict[str, bool]:
    before, after = ({name: nanos(text) for name, text in each.items()} for each in (old, new))
    return {"batch": any_changed(before, after, BATCH, strategy), "mid": any_changed(before, after, MID, strategy)}


def calculate(given: Given) -> dict[str, Any]:
    """Runs op `calculate`: one pass over a node.

    A node whose status lacks capacity or allocatable is not written to, nor is its topology: nothing is recorded after
    the calculation.
    """
    recorded = RecordedNode(given)
    return _pass(given, recorded, recorded.calculated())


def _pass(given: Given, recorded: RecordedNode, found: NodeCalculation) -> dict[str, Any]:
    status = recorded.node.status
    is_off = bool(given.get("colocationDisabled"))
    answers: dict[str, Any] = {
        "mid": {"error": True} if status.allocatable is None and not is_off else _mid(found.mid),
        "batch": _batch(found.batch),
    }
    if status.allocatable is None or status.capacity is None:
        return answers | {"prepared": None}
    if "nodeResourceTopology" in given:
        answers["nodeResourceTopology"] = zones_after(recorded, found)
    outcome = overcommit_event(recorded.node, found, None, "", recorded.now_ns)
    written = {name: text for name in (*BATCH, *MID) if (text := outcome.amounts[name]) is not None}
    answers["prepared"] = _prepared(outcome)
    answers["needSync"] = _need_sync(status.allocatable, written, found.strategy)
    return answers


def _batch(found: BatchResources | None) -> dict[str, Any]:
    if found is None:
        return {name: _size(None) for name in BATCH}
    answers = {batch_resources.CPU: _size(found.cpu * NANO), batch_resources.MEMORY: _size(found.memory)}
    if found.zones:
        answers[batch_resources.CPU]["zones"] = {name: _plain(each.cpu * NANO) for name, each in found.zones.items()}
        answers[batch_resources.MEMORY]["zones"] = {name: _plain(each.memory) for name, each in found.zones.items()}
    return answers


def _mid(found: MidResources | None) -> dict[str, Any]:
    if found is None:
        return {name: _size(None) for name in MID}
    return {mid_resources.CPU: _size(found.cpu * NANO), mid_resources.MEMORY: _size(found.memory * NANO)}


def _size(size: int | None) -> dict[str, Any]:
    return {"reset": True, "value": None, "milli": None} if size is None else {"reset": False} | _plain(size)


def _plain(size: int) -> dict[str, Any]:
    return {"value": value(size), "milli": milli(size)}


def _prepared(outcome: NodeOvercommitted) -> dict[str, Any]:
    texts = {name: outcome.amounts[name] for name in (*BATCH, *MID)}
    amounts = {name: None if text is None else value(nanos(text)) for name, text in texts.items()}
    origin = outcome.annotations.get(ORIGIN)
    resources = msgspec.json.decode(origin)["resources"] if origin is not None else None
    return {
        "allocatable": amounts,
        "capacity": amounts,
        "originExtendedAllocatable": resources and {name: value(nanos(size)) for name, size in resources.items()},
        "batchError": outcome.failed.get(noderesource_plugin_problems.BATCH) == noderesource_plugin_problems.PREPARE,
        "midError": False,
    }


def has_excessive_zones(op: str, given: Given) -> bool:
    """Reports whether the zones of a node sum to more than the node."""
    if op != "calculate":
        return False
    found = RecordedNode(given).calculated()
    return (
        found.batch is not None and found.bounded_batch is not None and found.batch.zones != found.bounded_batch.zones
    )


def with_excessive_zones(_: str, given: Given) -> dict[str, Any]:
    """Predicts upstream's output there: zones are written as they are calculated."""
    recorded = RecordedNode(given)
    found = recorded.calculated()
    assert found.batch is not None
    assert found.bounded_batch is not None
    return _pass(given, recorded, found._replace(bounded_batch=found.bounded_batch._replace(zones=found.batch.zones)))


def lacks_the_node(op: str, given: Given) -> bool:
    """Reports whether a fresh report has no part about the node itself."""
    if op != "calculate" or given.get("colocationDisabled"):
        return False
    recorded = RecordedNode(given)
    found, measured = recorded.calculated(), recorded.measured
    fresh = measured._replace(has_node=True)
    return found.mode == DEGRADED and not is_degraded(fresh, found.strategy, instant_ns(given["now"]))


def crashes(op: str, given: Given) -> dict[str, Any]:
    """Predicts upstream's output there: batch crashes, and mid does in its dynamic mode."""
    static = given["strategy"].get("midReclaimMode") == STATIC
    return {
        "batch": {"panic": True},
        "mid": answer(op, given)["mid"] if static else {"panic": True},
        "prepared": None,
    }
