"""Nodes without a kubelet: objects that a scheduler takes for real ones."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from cli.dev.kube_client import Api, ApiRefused, Object

CPUS = 32
MEMORY_GIB = 256
CAPACITY = {"cpu": str(CPUS), "memory": f"{MEMORY_GIB}Gi", "pods": "110"}
NUMA_NODES = 2
CONNECTIONS = 8
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"

Item = TypeVar("Item")


def node_object(
    name: str,
    *,
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A Node that is Ready.

    Args:
        name: also its hostname label.
        capacity: resource name -> quantity, over 32 cores, 256Gi and 110 pods; extended resources too.
        allocatable: over `capacity`.
        labels: over the ones that a kubelet sets.
        annotations: as they are.
    """
    total = CAPACITY | dict(capacity or {})
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    standard = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": standard | dict(labels or {}), "annotations": dict(annotations or {})},
        "status": {
            "capacity": total,
            "allocatable": total | dict(allocatable or {}),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **times}],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def topology_object(node: str, *, cpus: int = CPUS, memory_gib: int = MEMORY_GIB, reserved: str = "") -> Object:
    """The NodeResourceTopology of a node, as an agent reports it: NUMA nodes of one socket each, two threads a core.

    Args:
        node: its name.
        cpus, memory_gib: of the node; NUMA nodes have equal shares.
        reserved: CPUs that the kubelet keeps for itself, as `0-1`.
    """
    share = cpus // NUMA_NODES
    detail = [{"id": cpu, "core": cpu // 2, "socket": cpu // share, "node": cpu // share} for cpu in range(cpus)]
    amounts = [
        {"name": name, "capacity": size, "allocatable": size, "available": size}
        for name, size in (("cpu", str(share)), ("memory", f"{memory_gib // NUMA_NODES}Gi"))
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "annotations": {
                "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
                "kubelet.koordinator.sh/cpu-manager-policy": json.dumps({"policy": "none", "reservedCPUs": reserved}),
            },
        },
        "topologyPolicies": ["None"],
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": amounts} for zone in range(NUMA_NODES)],
    }


def create_topologies(api: Api, nodes: Iterable[str]) -> None:
    """Creates the NodeResourceTopology of each node."""

    def create(share: list[str]) -> None:
        with api.session() as session:
            for node in share:
                session.call("POST", TOPOLOGIES, topology_object(node))

    _spread(create, list(nodes))


def create_nodes(api: Api, nodes: Iterable[Object], *, taints: Sequence[Mapping[str, str]] = ()) -> list[str]:
    """Creates nodes over a few connections; returns their names, in order.

    Admission taints every new node `not-ready`, which a node controller would take away; none runs, so a patch does.

    Args:
        api: of an administrator.
        nodes: from `node_object`. Their status is taken over at creation, as a kubelet's is at registration.
        taints: what each node has in the end.
    """
    objects = list(nodes)
    spec = {"spec": {"taints": [dict(taint) for taint in taints] or None}}

    def create(share: list[Object]) -> None:
        with api.session() as session:
            for node in share:
                session.call("POST", "/api/v1/nodes", node)
                session.call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", spec)

    _spread(create, objects)
    return [str(node["metadata"]["name"]) for node in objects]


def delete_nodes(api: Api, names: Iterable[str]) -> None:
    """Deletes nodes; one that is gone already is fine."""

    def delete(share: list[str]) -> None:
        with api.session() as session:
            for name in share:
                try:
                    session.call("DELETE", f"/api/v1/nodes/{name}")
                except ApiRefused as error:
                    if error.reason != "NotFound":
                        raise

    _spread(delete, list(names))


def _spread(work: Callable[[list[Item]], None], items: list[Item]) -> None:
    shares = [share for start in range(CONNECTIONS) if (share := items[start::CONNECTIONS])]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(work, shares))
