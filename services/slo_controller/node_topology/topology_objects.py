"""The NodeResourceTopology of a node: made and kept as the node's agent states it, with the batch resources of its zones.

Source: spec/node-agent.md 7.2; spec/slo-controller.md 4.7. Upstream's agent writes the object itself; this system's agents have no rights
in the cluster. Who else writes resources into a zone keeps them.
"""

import json
from collections.abc import Mapping
from typing import Any

from services.slo_controller.node_topology.zone_resources import FIELDS, Zones, with_batch
from services.slo_controller.overcommit.calculate import Pass
from services.slo_controller.state.slo_state import SloState, Topology
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.nodes import NodeTopologyReported
from shared.kube.node_resource_topology import NUMA_RESERVATION
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.resource_names import NODE_TOPOLOGIES

ZONES = "batch-zones"
"""The field group of the zones. What is said beside them is the object's own group, so that it follows on its creation."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "Koordinator"}


def decide_topology(state: SloState, name: str, found: Pass | None) -> list[Draft]:
    """What is said of the topology of a node that is there.

    Args:
        found: what the node sells; None where nobody asked for over-commitment.
    """
    stated, there = state.stated.get(name), state.topologies.get(name)
    if there is None:
        if stated is None or state.says(NODE_TOPOLOGIES, name) is not None:
            return []
        return [Draft(ObjectDesired(resource=NODE_TOPOLOGIES, name=name, body=_body(state, name, stated)))]
    return [*_described(state, name, stated, there), *_zones(state, name, stated, there, found)]


def withdrawn(state: SloState, name: str) -> list[Draft]:
    """The topology of a node that is gone goes too, if it was made here."""
    if name not in state.topologies or state.says(NODE_TOPOLOGIES, name) is None:
        return []
    return [Draft(ObjectDesired(resource=NODE_TOPOLOGIES, name=name, body=None))]


def merged(zones: Zones, stated: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[dict[str, Any]]:
    """The zones with the stated resources, each as it is where it says the same; the others of a zone and other zones stay."""
    before = {str(zone.get("name", "")): zone for zone in zones}
    found = []
    for name, resources in stated.items():
        zone = dict(before.pop(name, {}))
        own = {str(each.get("name", "")): dict(each) for each in zone.get("resources") or ()}
        for resource, (capacity, allocatable) in resources.items():
            wanted = dict(zip(FIELDS, (capacity, allocatable, allocatable), strict=True))
            if not _same(own.get(resource), wanted):
                own[resource] = {"name": resource} | wanted
                zone["resources"] = [own[each] for each in sorted(own)]
        found.append(zone | {"name": name, "type": "Node"})
    return found + [dict(zone) for zone in before.values()]


def _body(state: SloState, name: str, stated: NodeTopologyReported) -> dict[str, Any]:
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": state.nodes[name].metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    patch = _patch(stated)
    return {
        "metadata": {**patch["metadata"], "ownerReferences": [owner]},
        "topologyPolicies": patch["topologyPolicies"],
        "zones": merged((), stated.zones),
    }


def _patch(stated: NodeTopologyReported) -> dict[str, Any]:
    labels = MANAGED_BY | ({NUMA_RESERVATION: stated.numa_reservation} if stated.numa_reservation else {})
    return {
        "metadata": {"annotations": stated.annotations, "labels": labels},
        "topologyPolicies": [stated.policy],
    }


def _described(state: SloState, name: str, stated: NodeTopologyReported | None, there: Topology) -> list[Draft]:
    """Annotations, labels and policy, where they are others than stated."""
    if stated is None:
        return []
    patch, said = _patch(stated), state.says(NODE_TOPOLOGIES, name)
    if said is None and _agrees(patch, there):
        return []
    if said is not None and NUMA_RESERVATION in (said.get("metadata") or {}).get("labels", {}):
        patch["metadata"]["labels"].setdefault(NUMA_RESERVATION, None)  # it was ours, and goes
    if said == patch:
        return []
    return [Draft(FieldsDesired(resource=NODE_TOPOLOGIES, name=name, fields="", patch=patch))]


def _zones(
    state: SloState,
    name: str,
    stated: NodeTopologyReported | None,
    there: Topology,
    found: Pass | None,
) -> list[Draft]:
    zones: list[dict[str, Any]] = merged(there.zones, stated.zones) if stated else there.zones
    if found is not None and found.sold is not None and found.sold.zones:
        zones = with_batch(zones, found.sold.zones, found.strategy, found.ratio)
    said = state.says(NODE_TOPOLOGIES, name, ZONES)
    if zones == there.zones or (said is not None and said.get("zones") == zones):
        return []
    return [Draft(FieldsDesired(resource=NODE_TOPOLOGIES, name=name, fields=ZONES, patch={"zones": zones}))]


def _agrees(patch: Mapping[str, Any], there: Topology) -> bool:
    """Whether the object says so already, as JSON goes."""
    meta = patch["metadata"]
    return (
        all(_json(there.annotations.get(name)) == _json(text) for name, text in meta["annotations"].items())
        and all(there.labels.get(label) == text for label, text in meta["labels"].items())
        and list(there.policies) == patch["topologyPolicies"]
    )


def _json(text: str | None) -> Any:
    try:
        return text if text is None else json.loads(text)
    except ValueError:
        return text


def _same(there: Mapping[str, Any] | None, wanted: Mapping[str, str]) -> bool:
    if there is None:
        return False
    try:
        return all(nanos(str(there[field])) == nanos(text) for field, text in wanted.items())
    except (KeyError, BadQuantity):
        return False
