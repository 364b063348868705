"""The resources of the simulated API, by apiVersion and kind.

Source: spec/api.md 1.1 for the custom resources.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from services.simulator.api.api_errors import ApiError, bad_request
from shared.kube import resource_names


class Resource(NamedTuple):
    """One kind of object.

    Attributes:
        name: plural and group, as events name it: `pods`, `nodemetrics.slo.koordinator.sh`.
        namespaced: its objects live in a namespace.
        status: `status` is a subresource, which a create or a plain patch does not change.
    """

    name: str
    kind: str
    api_version: str
    namespaced: bool
    status: bool


PODS = Resource("pods", "Pod", "v1", namespaced=True, status=True)
NODES = Resource("nodes", "Node", "v1", namespaced=False, status=True)
NAMESPACES = Resource("namespaces", "Namespace", "v1", namespaced=False, status=True)
CONFIGMAPS = Resource("configmaps", "ConfigMap", "v1", namespaced=True, status=False)
PRIORITY_CLASSES = Resource(
    resource_names.PRIORITY_CLASSES, "PriorityClass", "scheduling.k8s.io/v1", namespaced=False, status=False
)
REPLICA_SETS = Resource("replicasets.apps", "ReplicaSet", "apps/v1", namespaced=True, status=True)
NODE_METRICS = Resource(
    resource_names.NODE_METRICS, "NodeMetric", "slo.koordinator.sh/v1alpha1", namespaced=False, status=True
)


def _custom(plural: str, kind: str, group: str, *, namespaced: bool = False, status: bool = True) -> Resource:
    return Resource(f"{plural}.{group}", kind, f"{group}/v1alpha1", namespaced, status)


SCHEDULING = "scheduling.koordinator.sh"
SIGS = "scheduling.sigs.k8s.io"

RESOURCES: tuple[Resource, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    CONFIGMAPS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    NODE_METRICS,
    _custom("nodeslos", "NodeSLO", "slo.koordinator.sh"),
    _custom("reservations", "Reservation", SCHEDULING),
    _custom("devices", "Device", SCHEDULING, status=False),
    _custom("podmigrationjobs", "PodMigrationJob", SCHEDULING),
    _custom("clusternetworktopologies", "ClusterNetworkTopology", SCHEDULING),
    _custom("scheduleexplanations", "ScheduleExplanation", SCHEDULING, namespaced=True),
    _custom("elasticquotas", "ElasticQuota", SIGS, namespaced=True, status=False),
    _custom("elasticquotas", "ElasticQuota", "koordinator.sh", namespaced=True, status=False),
    _custom("podgroups", "PodGroup", SIGS, namespaced=True, status=False),
    _custom("clustercolocationprofiles", "ClusterColocationProfile", "config.koordinator.sh"),
    _custom("elasticquotaprofiles", "ElasticQuotaProfile", "quota.koordinator.sh", namespaced=True, status=False),
    _custom("recommendations", "Recommendation", "analysis.koordinator.sh", namespaced=True),
    _custom("noderesourcetopologies", "NodeResourceTopology", "topology.node.k8s.io", status=False),
)

BY_NAME: Mapping[str, Resource] = {resource.name: resource for resource in RESOURCES}
_BY_KIND: Mapping[tuple[str, str], Resource] = {
    (resource.api_version.rpartition("/")[0], resource.kind): resource for resource in RESOURCES
}


def resource_of(api_version: object, kind: object, *, namespaced: bool = False) -> Resource:
    """Returns the resource of an object.

    A kind that is not in RESOURCES counts as a custom resource whose plural ends in `s` and whose status is a
    subresource.

    Args:
        api_version: as in the object, `GROUP/VERSION` or `v1`.
        kind: as in the object.
        namespaced: the object names a namespace; used for a kind that is not in RESOURCES.

    Raises:
        ApiError: apiVersion or kind is missing or is no text.
    """
    for field, text in (("apiVersion", api_version), ("kind", kind)):
        if not isinstance(text, str) or not text:
            raise bad_request(f"{field}: Required value, such as apiVersion v1 and kind Pod; found {text!r}")
    group, _, _version = str(api_version).rpartition("/")
    known = _BY_KIND.get((group, str(kind)))
    if known:
        return known
    if not group:
        raise ApiError(404, "NotFound", f"the simulator keeps no {kind} in {api_version}")
    return Resource(f"{str(kind).lower()}s.{group}", str(kind), str(api_version), namespaced, status=True)


def resource_of_body(body: Mapping[str, Any]) -> Resource:
    """Returns the resource of a whole object; see `resource_of`."""
    metadata = body.get("metadata")
    namespaced = isinstance(metadata, dict) and bool(metadata.get("namespace"))
    return resource_of(body.get("apiVersion"), body.get("kind"), namespaced=namespaced)
