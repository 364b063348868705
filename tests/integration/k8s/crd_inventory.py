"""The custom resources of spec/api.md 1.1, and a full object of each in objects/."""

import copy
import secrets
from pathlib import Path
from typing import NamedTuple

import yaml

from cli.dev.kube_client import Api, Object

K8S = Path(__file__).parents[3] / "k8s"
OBJECTS = Path(__file__).parent / "objects"
NAMES = sorted(path.stem for path in OBJECTS.glob("*.yaml"))


class Definition(NamedTuple):
    """One row of the inventory in spec/api.md 1.1. `columns` is name <- jsonPath, `status` the subresource."""

    group: str
    kind: str
    plural: str
    namespaced: bool = False
    short: tuple[str, ...] = ()
    status: bool = False
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.plural}.{self.group}"

    def collection(self, namespace: str, version: str = "v1alpha1") -> str:
        inside = f"namespaces/{namespace}/" if self.namespaced else ""
        return f"/apis/{self.group}/{version}/{inside}{self.plural}"


AGE = "Age <- .metadata.creationTimestamp"
INVENTORY = (
    Definition("slo.koordinator.sh", "NodeMetric", "nodemetrics", status=True),
    Definition("slo.koordinator.sh", "NodeSLO", "nodeslos", status=True),
    Definition(
        "scheduling.koordinator.sh",
        "Reservation",
        "reservations",
        status=True,
        columns=(
            "Phase <- .status.phase",
            AGE,
            "Node <- .status.nodeName",
            "TTL <- .spec.ttl",
            "Expires <- .spec.expires",
        ),
    ),
    Definition("scheduling.koordinator.sh", "Device", "devices"),
    Definition(
        "scheduling.koordinator.sh",
        "PodMigrationJob",
        "podmigrationjobs",
        short=("pmj",),
        status=True,
        columns=(
            "Phase <- .status.phase",
            "Status <- .status.status",
            AGE,
            "Node <- .status.nodeName",
            "Reservation <- .spec.reservationOptions.reservationRef.name",
            "PodNamespace <- .spec.podRef.namespace",
            "Pod <- .spec.podRef.name",
            "NewPod <- .status.podRef.name",
            "TTL <- .spec.ttl",
        ),
    ),
    Definition("scheduling.koordinator.sh", "ClusterNetworkTopology", "clusternetworktopologies", status=True),
    Definition(
        "scheduling.koordinator.sh",
        "ScheduleExplanation",
        "scheduleexplanations",
        namespaced=True,
        short=("sched-exp",),
        status=True,
    ),
    Definition("scheduling.sigs.k8s.io", "ElasticQuota", "elasticquotas", namespaced=True),
    Definition("koordinator.sh", "ElasticQuota", "elasticquotas", namespaced=True),
    Definition("scheduling.sigs.k8s.io", "PodGroup", "podgroups", namespaced=True, short=("pg", "pgs")),
    Definition("config.koordinator.sh", "ClusterColocationProfile", "clustercolocationprofiles", status=True),
    Definition("quota.koordinator.sh", "ElasticQuotaProfile", "elasticquotaprofiles", namespaced=True, short=("eqp",)),
    Definition(
        "analysis.koordinator.sh",
        "Recommendation",
        "recommendations",
        namespaced=True,
        short=("recom",),
        status=True,
        columns=(
            AGE,
            "Type <- .spec.target.type",
            "Kind <- .spec.target.workload.kind",
            "Name <- .spec.target.workload.name",
            "LastUpdateTime <- .status.updateTime",
        ),
    ),
    Definition("topology.node.k8s.io", "NodeResourceTopology", "noderesourcetopologies", short=("node-res-topo",)),
)
BY_KIND = {(row.group, row.kind): row for row in INVENTORY}


def read(name: str) -> Object:
    """Returns one of the full objects in objects/."""
    found: Object = yaml.safe_load((OBJECTS / f"{name}.yaml").read_text())
    return found


def definition(of: Object) -> tuple[Definition, str]:
    """Returns the definition and the version that an object names."""
    group, version = of["apiVersion"].split("/")
    return BY_KIND[group, of["kind"]], version


def content(of: Object) -> Object:
    return {key: value for key, value in of.items() if key not in {"apiVersion", "kind", "metadata"}}


class Store:
    """Creates custom resources in one namespace, strictly: a field that the schema does not have is an error."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self._made: list[str] = []

    def create(self, desired: Object) -> Object:
        """Creates an object under a unique name, and its status if that is a subresource; returns the stored object."""
        row, version = definition(desired)
        collection = row.collection(self.namespace, version)
        desired = copy.deepcopy(desired)
        desired["metadata"]["name"] = f"{self.namespace}-{secrets.token_hex(4)}"
        stored = self.api.call("POST", f"{collection}?fieldValidation=Strict", desired)
        path = f"{collection}/{stored['metadata']['name']}"
        self._made.append(path)
        if row.status and desired.get("status"):
            stored["status"] = desired["status"]
            self.api.call("PUT", f"{path}/status?fieldValidation=Strict", stored)
        return self.api.call("GET", path)

    def clear(self) -> None:
        for path in self._made:
            self.api.call("DELETE", path)
