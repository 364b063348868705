"""The NodeResourceTopology object: zones of a node, and its agent's annotations.

Source: spec/api.md 1.13.
"""

from shared.kube.meta import KubeStruct, Metadata

CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
SHARED_POOLS = "node.koordinator.sh/cpu-shared-pools"
BE_SHARED_POOLS = "node.koordinator.sh/be-cpu-shared-pools"
CPU_MANAGER_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
RESERVATION = "node.koordinator.sh/reservation"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"

REPORTED_ANNOTATIONS = frozenset((
    CPU_BASIC_INFO, CPU_TOPOLOGY, SHARED_POOLS, BE_SHARED_POOLS, CPU_MANAGER_POLICY, POD_CPU_ALLOCS, RESERVATION, SYSTEM_QOS,
))  # fmt: skip
"""The annotations that a node's agent reports. RESERVATION and SYSTEM_QOS are read from the Node, where users set them."""

NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
"""Label of a Node, copied to its topology: the kubelet's reservation is subtracted from each zone."""


class ZoneResource(KubeStruct, frozen=True):
    """One resource of a zone; amounts as quantities."""

    name: str = ""
    allocatable: str = "0"


class Zone(KubeStruct, frozen=True):
    """A part of a node; NUMA nodes have the type `Node`."""

    name: str = ""
    type: str = ""
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(KubeStruct, frozen=True):
    """The kept part of a NodeResourceTopology; its name is the node's."""

    metadata: Metadata
    topology_policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()
