"""The status of the ClusterNetworkTopology: the tree that the labels of the nodes form.

One entry for each domain above the nodes, in the order of a walk through the tree. It is written where it differs from
the object. Source: spec/scheduler-workloads.md 2.5; spec/api.md 1.10.
"""

from collections.abc import Iterator
from typing import Any

from services.scheduler.cache.network_domains import NetworkDomains
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.state.watched_api_resources import NETWORK_TOPOLOGIES
from shared.domain.network_topology import OBJECT
from shared.events import Draft
from shared.events.intents import FieldsDesired

FIELDS = "network-topology"
"""The field group of the status."""


def network_topology_drafts(cache: CycleInputs) -> tuple[Draft, ...]:
    """Returns the write of the status, when the tree or the object has changed since the last call and they differ."""
    body = cache.view.objects.get(NETWORK_TOPOLOGIES, {}).get(OBJECT)
    domains = cache.cluster_objects.network.domains(cache.table)
    compared, cache.compared_topology = cache.compared_topology, (body, domains)
    if body is None or domains is None or (compared[0] is body and compared[1] is domains):
        return ()
    desired = detail_status(domains)
    if desired == ((body.get("status") or {}).get("detailStatus") or []):
        return ()
    uid, patch = str((body.get("metadata") or {}).get("uid", "")), {"status": {"detailStatus": desired}}
    return (Draft(FieldsDesired(NETWORK_TOPOLOGIES, OBJECT, FIELDS, patch, subresource="status", uid=uid)),)


def detail_status(domains: NetworkDomains) -> list[dict[str, Any]]:
    """Returns the entries of the tree."""
    return list(_entries(domains, 0, 0))


def _entries(domains: NetworkDomains, layer: int, domain: int) -> Iterator[dict[str, Any]]:
    below = layer + 1
    entry: dict[str, Any] = {"topologyInfo": _info(domains, layer, domain)}
    if layer:
        entry["parentTopologyInfo"] = _info(domains, layer - 1, int(domains.parents[layer][domain]))
    entry["childTopologyLayer"] = domains.layers[below]
    has_domains_below = below < len(domains.layers) - 1
    if has_domains_below:
        entry["childTopologyNames"] = [domains.names[below][each] for each in domains.below(layer, domain, below)]
    yield entry | {"nodeNum": len(domains.nodes_in(layer, domain))}
    if has_domains_below:
        for each in domains.below(layer, domain, below):
            yield from _entries(domains, below, each)


def _info(domains: NetworkDomains, layer: int, domain: int) -> dict[str, str]:
    return {"topologyLayer": domains.layers[layer], "topologyName": domains.names[layer][domain]}
