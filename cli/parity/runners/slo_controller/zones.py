"""The zones of a NodeResourceTopology after a pass, and upstream's record of its writes."""

from collections.abc import Mapping, Sequence
from typing import Any

from cli.parity.runners.slo_controller.recorded_node import RecordedNode
from services.slo_controller.node_topology.topology_objects import decide_topology
from services.slo_controller.node_topology.zone_batch_resources import FIELDS, has_zones
from services.slo_controller.overcommit import batch_resources
from services.slo_controller.overcommit.calculate import NodeCalculation
from shared.events.intents import FieldsDesired
from shared.kube.instants import SECOND, instant_text
from shared.kube.quantity import milli, nanos

Zone = Mapping[str, Any]


def zones_after(recorded: RecordedNode, found: NodeCalculation) -> dict[str, Any]:
    """Returns the zones that the controller wants, and whether upstream sends an update.

    Upstream also sends updates that change nothing: some time after its last one, and for a zone that it did not
    calculate.
    """
    zones = recorded.before_the_write()
    calculated = found.bounded_batch.zones if found.bounded_batch is not None else {}
    written = False
    if calculated and has_zones(zones or ()):
        patches = [
            draft.event.patch
            for draft in decide_topology(recorded.state, recorded.name, found)
            if isinstance(draft.event, FieldsDesired)
        ]
        written = bool(patches) or _is_late(recorded, found) or any(map(_has_batch, _others(zones or (), calculated)))
        zones = patches[0]["zones"] if patches else zones
    synced_ns = recorded.now_ns if calculated else recorded.synced_ns
    return {
        "error": False,
        "written": written,
        "lastSync": None if synced_ns is None else instant_text(synced_ns),
        "zones": None if zones is None else [_shown(zone) for zone in zones],
    }


def _is_late(recorded: RecordedNode, found: NodeCalculation) -> bool:
    patience_ns = (found.strategy.update_time_threshold_seconds or 0) * SECOND
    return recorded.synced_ns is None or recorded.now_ns - recorded.synced_ns > patience_ns


def _others(zones: Sequence[Zone], calculated: Mapping[str, Any]) -> list[Zone]:
    return [zone for zone in zones if zone.get("name") not in calculated]


def _has_batch(zone: Zone) -> bool:
    return any(
        nanos(resource[field])
        for resource in zone.get("resources") or ()
        if resource["name"] in (batch_resources.CPU, batch_resources.MEMORY)
        for field in FIELDS
    )


def _shown(zone: Zone) -> dict[str, Any]:
    return {
        "name": zone["name"],
        "resources": [
            {"name": each["name"]} | {f"{field}Milli": milli(nanos(each[field])) for field in FIELDS}
            for each in zone.get("resources") or ()
        ],
    }
