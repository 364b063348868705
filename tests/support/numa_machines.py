"""Machines with CPUs and NUMA zones, and pods that request some of them."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from services.scheduler.state.watched_api_resources import NODE_TOPOLOGIES
from shared.events.cluster import ObjectObserved
from shared.kube.node import Node
from shared.kube.node_resource_topology import NodeResourceTopology
from shared.kube.pod import Pod
from tests.support.scheduling_world import node, pod

BIND_LABEL = "node.koordinator.sh/cpu-bind-policy"
NUMA_LABEL = "node.koordinator.sh/numa-topology-policy"
STATUS = "scheduling.koordinator.sh/resource-status"
SPEC = "scheduling.koordinator.sh/resource-spec"
NUMA_SPEC = "scheduling.koordinator.sh/numa-topology-spec"


def cpu_topology(zones: int = 2, cpus: int = 8, smt: int = 2) -> str:
    """Returns `zones` NUMA nodes with a socket and `cpus` CPUs each; the CPUs of a core are neighbours."""
    detail = [
        {"id": id_, "core": id_ // smt, "socket": id_ // cpus, "node": id_ // cpus} for id_ in range(zones * cpus)
    ]
    return json.dumps({"detail": detail})


def reported(
    name: str = "n", zones: int = 2, cpus: int = 8, memory: str = "16Gi", annotations: Mapping[str, str] | None = None
) -> ObjectObserved:
    """Returns the NodeResourceTopology of such a machine."""
    resources = [{"name": "cpu", "allocatable": str(cpus)}, {"name": "memory", "allocatable": memory}]
    object_: dict[str, Any] = {
        "metadata": {"name": name, "annotations": {"node.koordinator.sh/cpu-topology": cpu_topology(zones, cpus)}},
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in range(zones)],
    }
    object_["metadata"]["annotations"] |= annotations or {}
    return ObjectObserved(resource=NODE_TOPOLOGIES, name=name, uid=f"nrt-{name}", object=object_)


def topology_of(event: ObjectObserved) -> NodeResourceTopology:
    return msgspec.convert(event.object, NodeResourceTopology)


def machine(
    name: str = "n", zones: int = 2, cpus: int = 8, labels: Mapping[str, str] | None = None, **more: Any
) -> Node:
    """Returns the Node of such a machine."""
    return node(name, cpu=str(zones * cpus), memory=f"{16 * zones}Gi", labels=labels, **more)


def bound_pod(name: str, cpus: int, bind: str = "", *, required: bool = False, exclusive: str = "", **more: Any) -> Pod:
    """Returns an LSR pod that gets exclusive CPUs."""
    spec = {"requiredCPUBindPolicy" if required else "preferredCPUBindPolicy": bind} if bind else {}
    if exclusive:
        spec["preferredCPUExclusivePolicy"] = exclusive
    annotations = {SPEC: json.dumps(spec)} if spec else {}
    annotations |= more.pop("annotations", {})
    labels = {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"}
    return pod(name, cpu=str(cpus), labels=labels, annotations=annotations, **more)


def holding_pod(name: str, cpuset: str, on: str, zones: Mapping[int, Mapping[str, str]] | None = None) -> Pod:
    """Returns a running pod that has these CPUs."""
    shares = [{"node": numa, "resources": dict(held)} for numa, held in (zones or {}).items()]
    status = json.dumps({"cpuset": cpuset, "numaNodeResources": shares})
    return bound_pod(name, 1, on=on, phase="Running", annotations={STATUS: status})
