"""Annotations of nodes, pods and the NodeResourceTopology that the agent reads. An invalid one counts as absent.

Source: spec/api.md 3; spec/node-agent.md 3.1, 7.2.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.kube.json_text import read_json
from shared.kube.node_resource_topology import CPU_MANAGER_POLICY, RESERVATION, SYSTEM_QOS
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.system_annotations import RESOURCE_STATUS


def mapping(annotations: Mapping[str, str] | None, name: str) -> dict[str, Any]:
    """Returns an annotation that is a JSON object; an empty one when it is absent or invalid."""
    text = (annotations or {}).get(name)
    if not text:
        return {}
    try:
        found: dict[str, Any] = read_json(text, dict[str, Any])
    except msgspec.MsgspecError:
        return {}
    return found


def cpus(text: object) -> frozenset[int]:
    """Parses a list of CPUs; empty when it is invalid."""
    try:
        return parse_cpus(text) if isinstance(text, str) else frozenset()
    except BadCpuList:
        return frozenset()


def reserved_nanos(annotations: Mapping[str, str] | None) -> int:
    """Returns the CPU that the node's annotation reserves, in nano-cores: the CPUs that it names, else its quantity."""
    reservation = mapping(annotations, RESERVATION)
    if named := cpus(reservation.get("reservedCPUs")):
        return len(named) * 10**9
    resources = reservation.get("resources")
    text = resources.get("cpu") if isinstance(resources, dict) else None
    try:
        return nanos(text) if isinstance(text, str) else 0
    except BadQuantity:
        return 0


class NumaResources(msgspec.Struct, frozen=True):
    """A pod's allocation on one NUMA node."""

    node: int = 0
    resources: dict[str, Any] | None = None


class ResourceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's allocation by the scheduler."""

    cpuset: str = ""
    numa_node_resources: tuple[NumaResources, ...] | None = None


_NO_STATUS = ResourceStatus()


def resource_status(pod: Pod) -> ResourceStatus:
    """Returns a pod's allocation by the scheduler, from its annotation."""
    text = (pod.metadata.annotations or {}).get(RESOURCE_STATUS)
    if not text:
        return _NO_STATUS
    try:
        found: ResourceStatus = read_json(text, ResourceStatus)
    except msgspec.MsgspecError:
        return _NO_STATUS
    return found


class ReservedCpus(NamedTuple):
    """CPUs that no best-effort pod may use, from the NodeResourceTopology.

    Attributes:
        reserved: for the node itself.
        system: for SYSTEM pods alone.
        static: the kubelet allocates CPUs by its static policy.
    """

    reserved: frozenset[int] = frozenset()
    system: frozenset[int] = frozenset()
    static: bool = False

    @classmethod
    def of(cls, annotations: Mapping[str, str] | None) -> "ReservedCpus":
        """Reads the topology's annotations."""
        system = mapping(annotations, SYSTEM_QOS)
        exclusive = system.get("cpusetExclusive") is not False
        return cls(
            cpus(mapping(annotations, RESERVATION).get("reservedCPUs")),
            cpus(system.get("cpuset")) if exclusive else frozenset(),
            mapping(annotations, CPU_MANAGER_POLICY).get("policy") == "static",
        )


def pod_cpus(pod: Pod) -> frozenset[int]:
    """Returns the CPUs that the scheduler allocated to a pod."""
    return cpus(resource_status(pod).cpuset)
