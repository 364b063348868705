"""The NodeResourceTopology object of a node: created and updated as its agent reports it, with batch resources of
zones.

Upstream's agent writes the object itself; here, agents have no rights in the cluster. Resources that another client
writes into a zone stay.

Source: spec/node-agent.md 7.2; spec/slo-controller.md 4.7.
"""

import json
from collections.abc import Mapping
from typing import Any

from services.slo_controller.node_topology.zone_batch_resources import FIELDS, Zones, with_batch
from services.slo_controller.overcommit.calculate import NodeCalculation
from services.slo_controller.state.node_topology_and_capacity_records import Topology
from services.slo_controller.state.slo_state import SloState
from shared.events import Draft
from shared.events.intents import FieldsDesired, ObjectDesired
from shared.events.nodes import NodeTopologyReported
from shared.kube.node_resource_topology import NUMA_RESERVATION
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.resource_names import NODE_TOPOLOGIES

ZONES = "batch-zones"
"""The field group of the zones. Other fields belong to the object's own group, so that they follow its creation."""
MANAGED_BY = {"app.kubernetes.io/managed-by": "Koordinator"}


def decide_topology(state: SloState, name: str, found: NodeCalculation | None) -> list[Draft]:
    """Decides the topology of an existing node.

    Args:
        found: the node's calculation; None where overcommitment is not configured.
    """
    reported, observed = state.reported_topologies.get(name), state.topologies.get(name)
    if observed is None:
        if reported is None or state.desired(NODE_TOPOLOGIES, name) is not None:
            return []
        return [Draft(ObjectDesired(resource=NODE_TOPOLOGIES, name=name, body=_body(state, name, reported)))]
    return [*_metadata_drafts(state, name, reported, observed), *_zone_drafts(state, name, reported, observed, found)]


def topology_deletion(state: SloState, name: str) -> list[Draft]:
    """Deletes the topology of a deleted node, if this controller created it."""
    if name not in state.topologies or state.desired(NODE_TOPOLOGIES, name) is None:
        return []
    return [Draft(ObjectDesired(resource=NODE_TOPOLOGIES, name=name, body=None))]


def merged(zones: Zones, reported: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[dict[str, Any]]:
    """Merges reported resources into zones. An equal resource stays as it is written, other resources and zones stay."""
    before = {str(zone.get("name", "")): zone for zone in zones}
    found = []
    for name, resources in reported.items():
        zone = dict(before.pop(name, {}))
        own = {str(each.get("name", "")): dict(each) for each in zone.get("resources") or ()}
        for resource, (capacity, allocatable) in resources.items():
            amounts = dict(zip(FIELDS, (capacity, allocatable, allocatable), strict=True))
            if not _same(own.get(resource), amounts):
                own[resource] = {"name": resource} | amounts
                zone["resources"] = [own[each] for each in sorted(own)]
        found.append(zone | {"name": name, "type": "Node"})
    return found + [dict(zone) for zone in before.values()]


def _body(state: SloState, name: str, reported: NodeTopologyReported) -> dict[str, Any]:
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": name,
        "uid": state.nodes[name].metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    patch = _patch(reported)
    return {
        "metadata": {**patch["metadata"], "ownerReferences": [owner]},
        "topologyPolicies": patch["topologyPolicies"],
        "zones": merged((), reported.zones),
    }


def _patch(reported: NodeTopologyReported) -> dict[str, Any]:
    labels = MANAGED_BY | ({NUMA_RESERVATION: reported.numa_reservation} if reported.numa_reservation else {})
    return {
        "metadata": {"annotations": reported.annotations, "labels": labels},
        "topologyPolicies": [reported.policy],
    }


def _metadata_drafts(
    state: SloState, name: str, reported: NodeTopologyReported | None, observed: Topology
) -> list[Draft]:
    """Updates annotations, labels and policy where they differ from the reported ones."""
    if reported is None:
        return []
    patch, desired = _patch(reported), state.desired(NODE_TOPOLOGIES, name)
    if desired is None and _agrees(patch, observed):
        return []
    if desired is not None and NUMA_RESERVATION in (desired.get("metadata") or {}).get("labels", {}):
        patch["metadata"]["labels"].setdefault(
            NUMA_RESERVATION, None
        )  # remove the label that an earlier report had set
    if desired == patch:
        return []
    return [Draft(FieldsDesired(resource=NODE_TOPOLOGIES, name=name, fields="", patch=patch))]


def _zone_drafts(
    state: SloState,
    name: str,
    reported: NodeTopologyReported | None,
    observed: Topology,
    found: NodeCalculation | None,
) -> list[Draft]:
    zones: list[dict[str, Any]] = merged(observed.zones, reported.zones) if reported else observed.zones
    if found is not None and found.bounded_batch is not None and found.bounded_batch.zones:
        zones = with_batch(zones, found.bounded_batch.zones, found.strategy, found.ratio)
    desired = state.desired(NODE_TOPOLOGIES, name, ZONES)
    if zones == observed.zones or (desired is not None and desired.get("zones") == zones):
        return []
    return [Draft(FieldsDesired(resource=NODE_TOPOLOGIES, name=name, fields=ZONES, patch={"zones": zones}))]


def _agrees(patch: Mapping[str, Any], observed: Topology) -> bool:
    """Reports whether the object has these values already; annotations are compared as JSON."""
    meta = patch["metadata"]
    return (
        all(_json(observed.annotations.get(name)) == _json(text) for name, text in meta["annotations"].items())
        and all(observed.labels.get(label) == text for label, text in meta["labels"].items())
        and list(observed.policies) == patch["topologyPolicies"]
    )


def _json(text: str | None) -> Any:
    try:
        return text if text is None else json.loads(text)
    except ValueError:
        return text


def _same(observed: Mapping[str, Any] | None, amounts: Mapping[str, str]) -> bool:
    if observed is None:
        return False
    try:
        return all(nanos(str(observed[field])) == nanos(text) for field, text in amounts.items())
    except (KeyError, BadQuantity):
        return False
