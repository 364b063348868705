"""The NodeResourceTopology object as read: zones of a node and what its agent says in annotations.

Source: spec/api.md 1.13.
"""

from shared.kube.meta import KubeStruct, Metadata


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
