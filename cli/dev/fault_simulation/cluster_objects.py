"""The objects of a small cluster: three nodes, two quotas, a disruption budget, and pods of every band."""

import json
from typing import Any

from shared.kube import resource_names
from shared.kube.elastic_quota import QUOTA_NAME

NAMESPACE = "apps"
CONFIG_NAMESPACE = "koordinator-system"
NODE_CORES = 8
NODE_MEMORY_GI = 16
ZONE_POLICIES = ("None", "SingleNUMANodePodLevel", "RestrictedPodLevel")
"""Topology policies of the nodes of two NUMA nodes, in their order."""
QUOTAS = {"team-a": 6, "team-b": 4}
"""Name -> cores that its pods may use at most."""
REPORT_INTERVAL_S = 8
REPORTS_EXPIRE_S = 14
"""Seconds after which a usage report has expired: a minute of `degradeTimeMinutes` lasts a second (substitutions)."""
SCHEDULER = "koord-scheduler"
QOS_LABEL = "koordinator.sh/qosClass"
BAND_LABEL = "koordinator.sh/priority-class"

WITH_OWN_CPUS = {QOS_LABEL: "LSR", BAND_LABEL: "koord-prod"}
"""Labels of pods that get CPUs of their own."""
GPUS, GPU_KIND = 2, "gpu"
KINDS = ("plain", "team-a", "team-b", "bound-cpus", "high", "batch", "guarded")
"""Kinds of pods: without a quota, of a quota, with CPUs of its own, of a high priority, best effort, with a budget."""

Body = dict[str, Any]


def node(name: str) -> Body:
    """Returns a node."""
    amounts = {"cpu": str(NODE_CORES), "memory": f"{NODE_MEMORY_GI}Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def topology(name: str, zones: int = 1, policy: str = "None") -> Body:
    """Returns the NodeResourceTopology of a node with one socket, cores of two threads, and so many NUMA nodes."""
    detail = [
        {"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu * zones // NODE_CORES} for cpu in range(NODE_CORES)
    ]
    amounts = [
        {"name": kind, "capacity": size, "allocatable": size, "available": size}
        for kind, size in (("cpu", str(NODE_CORES // zones)), ("memory", f"{NODE_MEMORY_GI // zones}Gi"))
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
        },
        "topologyPolicies": [policy],
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": amounts} for zone in range(zones)],
    }


def namespace(name: str) -> Body:
    """Returns a namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}}


def quota(name: str, cores: int) -> Body:
    """Returns an ElasticQuota."""
    amounts = {"cpu": str(cores), "memory": "64Gi"}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"min": {"cpu": "1", "memory": "1Gi"}, "max": amounts},
    }


def budget(allowed: int) -> Body:
    """Returns the disruption budget of guarded pods."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guarded", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": allowed},
    }


def overcommit_config() -> Body:
    """Returns the ConfigMap that turns overcommitment on."""
    colocation = {
        "enable": True,
        "metricAggregateDurationSeconds": 60,
        "metricReportIntervalSeconds": REPORT_INTERVAL_S,
        "degradeTimeMinutes": REPORTS_EXPIRE_S,
        "cpuReclaimThresholdPercent": 90,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": CONFIG_NAMESPACE},
        "data": {"colocation-config": json.dumps(colocation)},
    }


def pod(name: str, kind: str, cores: int) -> Body:
    """Returns a pod of one of `KINDS`."""
    requests = {"cpu": str(cores), "memory": "256Mi"}
    labels = {QOS_LABEL: "LS", BAND_LABEL: "koord-prod"}
    priority = 9_000
    if kind in QUOTAS:
        labels[QUOTA_NAME] = kind
    elif kind == "bound-cpus":
        labels |= WITH_OWN_CPUS
    elif kind == "high":
        priority = 9_900
    elif kind == "guarded":
        labels["app"] = "guarded"
    elif kind == GPU_KIND:
        requests |= {"koordinator.sh/gpu-core": str(cores * 25), "koordinator.sh/gpu-memory-ratio": str(cores * 25)}
    elif kind == "batch":
        labels = {QOS_LABEL: "BE", BAND_LABEL: "koord-batch"}
        requests = {"kubernetes.io/batch-cpu": str(cores * 500), "kubernetes.io/batch-memory": "128Mi"}
        priority = 5_500
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "schedulerName": SCHEDULER,
            "priority": priority,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}],
        },
        "status": {"phase": "Pending"},
    }


def copied(body: Body) -> Body:
    """Returns an object of the same name in another cluster: with another uid, and bound to no node."""
    uid = body["metadata"]["uid"].replace("-4000-", "-4fff-")
    metadata = {name: value for name, value in body["metadata"].items() if name != "deletionTimestamp"}
    spec = {name: value for name, value in body.get("spec", {}).items() if name != "nodeName"}
    return {**body, "metadata": {**metadata, "uid": uid}, "spec": spec}


def initial() -> list[tuple[str, Body]]:
    """Returns the objects with which every world begins: (resource, object)."""
    names = [f"node-{number}" for number in range(3)]
    return [
        *(("namespaces", namespace(name)) for name in (NAMESPACE, CONFIG_NAMESPACE, "kube-system")),
        *(("nodes", node(name)) for name in names),
        *((resource_names.NODE_TOPOLOGIES, topology(name)) for name in names),
        *((resource_names.QUOTAS, quota(name, cores)) for name, cores in QUOTAS.items()),
        (resource_names.BUDGETS, budget(1)),
        ("configmaps", overcommit_config()),
    ]
