"""Resources beyond nodes, pods and quotas that the fold keeps because plugins read them."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.state.cluster_event import ClusterEvent
from shared.kube import resource_names
from shared.kube.storage import SELECTED_NODE

NAMESPACES = "namespaces"
SERVICES = "services"
OWNERS: Mapping[str, str] = {
    "replicationcontrollers": "ReplicationController",
    "replicasets.apps": "ReplicaSet",
    "statefulsets.apps": "StatefulSet",
}
"""Resource -> kind of the workloads whose selector spreads their pods."""

CLAIMS = "persistentvolumeclaims"
VOLUMES = "persistentvolumes"
STORAGE_CLASSES = "storageclasses.storage.k8s.io"
CSI_NODES = "csinodes.storage.k8s.io"
CSI_DRIVERS = "csidrivers.storage.k8s.io"
CSI_CAPACITIES = "csistoragecapacities.storage.k8s.io"
STORAGE = (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, CSI_CAPACITIES)

BUDGETS = resource_names.BUDGETS
NODE_TOPOLOGIES = resource_names.NODE_TOPOLOGIES
DEVICES = resource_names.DEVICES
OF_NODES = (NODE_TOPOLOGIES, DEVICES)
"""Resources whose objects belong to the node of their name."""

CONFIG_MAPS = "configmaps"
"""Of these the State keeps the templates of shared GPUs alone."""

RESERVATIONS = resource_names.RESERVATIONS
POD_GROUPS = resource_names.POD_GROUPS
OPERATING_PODS = "pods in operating mode Reservation"
"""No resource of the API: the key under which the State keeps such pods as Reservations, by uid."""
NETWORK_TOPOLOGIES = resource_names.NETWORK_TOPOLOGIES

WATCHED: Mapping[str, ClusterEvent] = {
    **dict.fromkeys(OF_NODES, ClusterEvent.TOPOLOGY),
    NAMESPACES: ClusterEvent.NAMESPACE,
    SERVICES: ClusterEvent.WORKLOAD,
    **dict.fromkeys(OWNERS, ClusterEvent.WORKLOAD),
    **dict.fromkeys(STORAGE, ClusterEvent.VOLUME),
    BUDGETS: ClusterEvent.BUDGET,
    RESERVATIONS: ClusterEvent.RESERVATION,
    POD_GROUPS: ClusterEvent.POD_GROUP,
    NETWORK_TOPOLOGIES: ClusterEvent.POD_GROUP,
}
"""Resource -> kind of cluster event that a change of one of its objects is."""


def is_unselected(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    """Returns True where a claim without a volume has lost its selected node: its provisioner rejected the node, or the
    claim is new, and a node that was selected before was that of another claim of its name.
    """
    if (after.get("spec") or {}).get("volumeName"):
        return False
    return before is None or (bool(_selected_node(before)) and not _selected_node(after))


def _selected_node(claim: Mapping[str, Any]) -> str:
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(SELECTED_NODE, ""))
