"""Resources of the API that the gateway lists, watches and writes, and their paths.

A resource is named by its plural and group, as in `kubectl api-resources`: `pods`,
`elasticquotas.scheduling.sigs.k8s.io`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from shared.kube import resource_names

_PLAIN = re.compile(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)?").fullmatch


class Resource(NamedTuple):
    """One resource of the API.

    Attributes:
        name: plural and group.
        api_version: group and version under which it is read and written.
        namespace: when given, the only namespace whose objects are watched.
        keep: when given, dotted paths of the only fields that are kept besides name, uid and deletion; a change of any
            other field makes no event.
    """

    name: str
    api_version: str
    kind: str
    namespaced: bool = False
    namespace: str = ""
    keep: tuple[str, ...] = ()

    @property
    def plural(self) -> str:
        """Returns the plural without the group, as in paths."""
        return self.name.partition(".")[0]

    @property
    def prefix(self) -> str:
        """Returns the path of the group and version."""
        return f"/api/{self.api_version}" if "/" not in self.api_version else f"/apis/{self.api_version}"

    def collection(self, namespace: str = "") -> str:
        """Returns the path of all objects, or of those in a namespace."""
        return f"{self.prefix}/namespaces/{namespace}/{self.plural}" if namespace else f"{self.prefix}/{self.plural}"

    @property
    def watched_path(self) -> str:
        """Returns the path that is listed and watched."""
        return self.collection(self.namespace)

    def path(self, key: str) -> str:
        """Returns the path of one object; `key` is `namespace/name`, or the name of a cluster-scoped object."""
        namespace, _, name = key.rpartition("/")
        # The API refuses such a name; quoted, it cannot become the path of another object (`..`, `?`).
        if not _PLAIN(key):
            namespace, name = (quote(part, safe="").replace(".", "%2E") for part in (namespace, name))
        return f"{self.collection(namespace)}/{name}"


PODS = Resource("pods", "v1", "Pod", namespaced=True)
NODES = Resource("nodes", "v1", "Node")
ESSENTIAL = frozenset({PODS.name, NODES.name})
"""Resources without whose list nothing is decided; every other one may be not installed."""

EVENTS = Resource(resource_names.KUBERNETES_EVENTS, "v1", "Event", namespaced=True)
NAMESPACES = Resource("namespaces", "v1", "Namespace")
NODE_METRICS = Resource(resource_names.NODE_METRICS, "slo.koordinator.sh/v1alpha1", "NodeMetric")
RESERVATIONS = Resource(resource_names.RESERVATIONS, "scheduling.koordinator.sh/v1alpha1", "Reservation")
_SELECTOR = ("spec.selector",)
_REPLICAS = ("spec.replicas",)
_WORKLOAD = (*_SELECTOR, *_REPLICAS)
_STORAGE = "storage.k8s.io/v1"
CONFIG_MAPS = Resource("configmaps", "v1", "ConfigMap", namespaced=True)

# Nodes come before pods, so that a reader of the log's first events finds most pods' nodes above them.
_ALL = (
    NODES,
    NAMESPACES,
    Resource(resource_names.PRIORITY_CLASSES, "scheduling.k8s.io/v1", "PriorityClass"),
    CONFIG_MAPS,
    NODE_METRICS,
    Resource(resource_names.NODE_SLOS, "slo.koordinator.sh/v1alpha1", "NodeSLO"),
    RESERVATIONS,
    Resource(resource_names.DEVICES, "scheduling.koordinator.sh/v1alpha1", "Device"),
    Resource(resource_names.MIGRATION_JOBS, "scheduling.koordinator.sh/v1alpha1", "PodMigrationJob"),
    Resource(
        resource_names.NETWORK_TOPOLOGIES,
        "scheduling.koordinator.sh/v1alpha1",
        "ClusterNetworkTopology",
    ),
    Resource(
        resource_names.EXPLANATIONS,
        "scheduling.koordinator.sh/v1alpha1",
        "ScheduleExplanation",
        namespaced=True,
    ),
    Resource(resource_names.QUOTAS, "scheduling.sigs.k8s.io/v1alpha1", "ElasticQuota", namespaced=True),
    Resource(resource_names.GUIDE_QUOTAS, "koordinator.sh/v1alpha1", "ElasticQuota", namespaced=True),
    Resource(resource_names.POD_GROUPS, "scheduling.sigs.k8s.io/v1alpha1", "PodGroup", namespaced=True),
    Resource(
        resource_names.PROFILES,
        "config.koordinator.sh/v1alpha1",
        "ClusterColocationProfile",
    ),
    Resource(
        resource_names.QUOTA_PROFILES,
        "quota.koordinator.sh/v1alpha1",
        "ElasticQuotaProfile",
        namespaced=True,
    ),
    Resource(
        resource_names.RECOMMENDATIONS,
        "analysis.koordinator.sh/v1alpha1",
        "Recommendation",
        namespaced=True,
    ),
    # Selectors of default topology spreading, and disruption budgets.
    Resource("services", "v1", "Service", namespaced=True, keep=_SELECTOR),
    Resource("replicationcontrollers", "v1", "ReplicationController", namespaced=True, keep=_WORKLOAD),
    Resource(
        "replicasets.apps",
        "apps/v1",
        "ReplicaSet",
        namespaced=True,
        keep=(*_WORKLOAD, "metadata.ownerReferences"),
    ),
    Resource("statefulsets.apps", "apps/v1", "StatefulSet", namespaced=True, keep=_WORKLOAD),
    # Replicas of the other workloads whose pods the descheduler moves.
    Resource("deployments.apps", "apps/v1", "Deployment", namespaced=True, keep=_REPLICAS),
    Resource("clonesets.apps.kruise.io", "apps.kruise.io/v1alpha1", "CloneSet", namespaced=True, keep=_REPLICAS),
    Resource("statefulsets.apps.kruise.io", "apps.kruise.io/v1beta1", "StatefulSet", namespaced=True, keep=_REPLICAS),
    Resource(
        resource_names.BUDGETS,
        "policy/v1",
        "PodDisruptionBudget",
        namespaced=True,
        keep=("spec.selector", "status.disruptionsAllowed", "status.disruptedPods"),
    ),
    # Volumes and the objects that restrict where they can be used.
    Resource(
        resource_names.VOLUMES,
        "v1",
        "PersistentVolume",
        keep=(
            "metadata.labels",
            "spec.accessModes",
            "spec.capacity",
            "spec.claimRef",
            "spec.csi.driver",
            "spec.csi.volumeHandle",
            "spec.nodeAffinity",
            "spec.storageClassName",
            "spec.volumeMode",
            "status.phase",
        ),
    ),
    Resource(
        resource_names.CLAIMS,
        "v1",
        "PersistentVolumeClaim",
        namespaced=True,
        keep=(
            "metadata.annotations",
            "spec.accessModes",
            "spec.resources",
            "spec.selector",
            "spec.storageClassName",
            "spec.volumeMode",
            "spec.volumeName",
            "status.phase",
        ),
    ),
    Resource(
        "storageclasses.storage.k8s.io",
        _STORAGE,
        "StorageClass",
        keep=("allowedTopologies", "provisioner", "volumeBindingMode"),
    ),
    Resource("csinodes.storage.k8s.io", _STORAGE, "CSINode", keep=("spec.drivers",)),
    Resource("csidrivers.storage.k8s.io", _STORAGE, "CSIDriver", keep=("spec.storageCapacity",)),
    Resource(
        "csistoragecapacities.storage.k8s.io",
        _STORAGE,
        "CSIStorageCapacity",
        namespaced=True,
        keep=("capacity", "maximumVolumeSize", "nodeTopology", "storageClassName"),
    ),
    Resource(resource_names.NODE_TOPOLOGIES, "topology.node.k8s.io/v1alpha1", "NodeResourceTopology"),
    PODS,
)

RESOURCES: Mapping[str, Resource] = {resource.name: resource for resource in (*_ALL, EVENTS)}
"""Resources that may be written; all but Events are watched. Source: spec/api.md 1.1 and the core objects that decisions read."""


def watched_resources(config_namespace: str) -> tuple[Resource, ...]:
    """Returns the resources to list and watch; ConfigMaps of `config_namespace` only, unless it is empty."""
    return tuple(
        resource._replace(namespace=config_namespace) if resource is CONFIG_MAPS else resource for resource in _ALL
    )
