"""The `overcommit` vectors: batch and mid resources of a node, their difference test, and the strategy of a node."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.slo_controller import batch, mid
from services.slo_controller.batch import Batch, batch_of, terms_of
from services.slo_controller.books import add_up, facts_of
from services.slo_controller.measured import NOTHING, Measured, of_status
from services.slo_controller.mid import STATIC, Mid, mid_of
from services.slo_controller.prepare import NORMALIZATION_RATIO, Prepared, origin_text, prepared
from services.slo_controller.reserved import capacity_of, reserved_of
from services.slo_controller.steady import is_degraded, moved
from services.slo_controller.strategy import effective, invalid
from services.slo_controller.topology import FIELDS, has_zones, write_of
from shared.kube.instants import instant_ns
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric
from shared.kube.node_topology import Zone
from shared.kube.pod import Pod
from shared.kube.quantity import NANO, BadQuantity, milli, nanos, value
from shared.kube.slo_config import ColocationConfig, ColocationStrategy

BATCH = (batch.CPU, batch.MEMORY)
MID = (mid.CPU, mid.MEMORY)


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    match op:
        case "need_sync":
            return need_sync(given)
        case "effective_strategy":
            config = msgspec.convert(given["config"], ColocationConfig)
            strategy = effective(config, msgspec.convert(given["node"]["metadata"], Metadata))
            whole = msgspec.json.decode(msgspec.json.encode(strategy))
            return {"strategy": whole, "valid": invalid(strategy) is None}
    return calculate(given)


def need_sync(given: Mapping[str, Any]) -> dict[str, Any]:
    """The difference test of both kinds."""
    strategy = msgspec.convert(given["strategy"], ColocationStrategy)
    old, new = (given[name]["status"].get("allocatable") or {} for name in ("oldNode", "newNode"))
    return {"batch": moved(old, new, BATCH, strategy), "mid": moved(old, new, MID, strategy)}


def calculate(given: Mapping[str, Any]) -> dict[str, Any]:
    """One pass over a node."""
    strategy = msgspec.convert(given["strategy"], ColocationStrategy)
    node = msgspec.convert(given["node"], Node)
    metric = given.get("nodeMetric")
    measured = of_status(msgspec.convert(metric, NodeMetric).status) if metric else NOTHING
    now_ns = instant_ns(given["now"])
    topology = given.get("nodeResourceTopology") or {}
    zones = msgspec.convert(topology.get("zones") or (), tuple[Zone, ...])
    zones = zones if has_zones(topology.get("zones") or ()) else ()
    facts = [facts_of(msgspec.convert(pod, Pod)) for pod in given["pods"]]
    books = add_up(facts, measured, len(zones))
    capacity, reserved = capacity_of(node), reserved_of(node)
    off = bool(given.get("colocationDisabled"))
    stale = off or is_degraded(measured, strategy, now_ns)
    found = None if stale else batch_of(terms_of(capacity, reserved, measured, books, strategy), strategy, zones, books)
    broken = node.status.allocatable is None and not off
    # Static mode needs the time of the report alone.
    aged = off or is_degraded(_timed(measured, strategy), strategy, now_ns)
    found_mid = None if aged or broken else mid_of(capacity, reserved, measured, books, strategy)
    ratio = (given.get("calculatedAnnotations") or {}).get(NORMALIZATION_RATIO)
    said: dict[str, Any] = {
        "mid": {"error": True} if broken else _mid(found_mid),
        "batch": _batch(found, zones),
    }
    if "nodeResourceTopology" in given:
        said["nodeResourceTopology"] = _topology(given, found, strategy, ratio, now_ns)
    if node.status.allocatable is None or node.status.capacity is None:
        return said | {"prepared": None}
    whole = prepared(node, found, found_mid, ratio)
    said["prepared"] = _prepared(node, whole)
    old = node.status.allocatable
    new = {name: str(size) for name, size in whole.amounts.items() if size is not None}
    said["needSync"] = {"batch": moved(old, new, BATCH, strategy), "mid": moved(old, new, MID, strategy)}
    return said


def _timed(measured: Measured, strategy: ColocationStrategy) -> Measured:
    return measured._replace(has_node=True) if strategy.mid_reclaim_mode == STATIC else measured


def _batch(found: Batch | None, zones: tuple[Zone, ...]) -> dict[str, Any]:
    if found is None:
        return {name: _size(0, reset=True) for name in BATCH}
    said = {batch.CPU: _size(found.cpu * NANO), batch.MEMORY: _size(found.memory)}
    if zones:
        said[batch.CPU]["zones"] = {name: _plain(each.cpu * NANO) for name, each in found.zones.items()}
        said[batch.MEMORY]["zones"] = {name: _plain(each.memory) for name, each in found.zones.items()}
    return said


def _mid(found: Mid | None) -> dict[str, Any]:
    if found is None:
        return {name: _size(0, reset=True) for name in MID}
    return {mid.CPU: _size(found.cpu * NANO), mid.MEMORY: _size(found.memory * NANO)}


def _size(size: int, *, reset: bool = False) -> dict[str, Any]:
    return {"reset": True, "value": None, "milli": None} if reset else {"reset": False} | _plain(size)


def _plain(size: int) -> dict[str, Any]:
    return {"value": value(size), "milli": milli(size)}


def _topology(
    given: Mapping[str, Any], found: Batch | None, strategy: ColocationStrategy, ratio: str | None, now_ns: int
) -> dict[str, Any]:
    synced = given.get("nrtLastSync")
    there = given.get("nodeResourceTopologyAtWrite") or given.get("nodeResourceTopology")
    if given.get("nrtGoneAtWrite"):
        there = None
    zones: Any = (there or {}).get("zones") or []
    written = False
    if found is not None and found.zones:
        if has_zones(zones):
            write = write_of(
                zones, found.zones, strategy, ratio, synced_ns=synced and instant_ns(synced), now_ns=now_ns
            )
            written = write.due
            zones = write.zones if written else zones
        synced = given["now"]
    shown = [
        {
            "name": zone["name"],
            "resources": [
                {"name": each["name"]} | {f"{field}Milli": milli(nanos(each[field])) for field in FIELDS}
                for each in zone.get("resources") or ()
            ],
        }
        for zone in zones
    ]
    return {"error": False, "written": written, "lastSync": synced, "zones": shown if there is not None else None}


def _prepared(node: Node, whole: Prepared) -> dict[str, Any]:
    return {
        "allocatable": whole.amounts,
        "capacity": whole.amounts,
        "originExtendedAllocatable": _origin(origin_text(node.metadata.annotations, *whole.origin)),
        "batchError": bool(whole.problem),
        "midError": False,
    }


def _origin(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return {name: value(nanos(size)) for name, size in msgspec.json.decode(text)["resources"].items()}
    except BadQuantity:
        return None


def lacks_the_node(op: str, given: Mapping[str, Any]) -> bool:
    """Whether a fresh report says nothing of the node itself."""
    if op != "calculate" or given.get("colocationDisabled") or not given.get("nodeMetric"):
        return False
    measured = of_status(msgspec.convert(given["nodeMetric"], NodeMetric).status)
    strategy = msgspec.convert(given["strategy"], ColocationStrategy)
    stale = is_degraded(measured._replace(has_node=True), strategy, instant_ns(given["now"]))
    return not measured.has_node and not stale


def crashes(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What upstream answers there: batch crashes, and mid does in its dynamic mode."""
    static = given["strategy"].get("midReclaimMode") == STATIC
    return {
        "batch": {"panic": True},
        "mid": answer(op, given)["mid"] if static else {"panic": True},
        "prepared": None,
    }
