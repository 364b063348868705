"""Volumes, their claims and classes, and the pods that use them.

The pods `volume-N` and `volume-N-LETTER` use the claim `data-N`. Of the class `local` there are volumes on nodes, one
of which is chosen for a claim; for those of the class `made` a volume is provisioned on the node of the first pod.
"""

from typing import Any

from cli.dev.fault_simulation.cluster_objects import NAMESPACE, Body, pod
from shared.kube.storage import BOUND_BY_CONTROLLER

LOCAL, MADE = "local", "made"
NO_PROVISIONER, PROVISIONER = "kubernetes.io/no-provisioner", "made.example.com"
USES_VOLUME = "volume"
"""Kind of a pod with a claim."""

LOCAL_VOLUMES = {"node-0": ("2Gi", "4Gi"), "node-1": ("2Gi",), "node-2": ("4Gi",)}
"""Node -> sizes of its local volumes."""


def storage_class(name: str) -> Body:
    """Returns a class whose volumes are bound once a pod that uses them has a node."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": NO_PROVISIONER if name == LOCAL else PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, class_: str, node: str, size: str, claim: Body | None = None) -> Body:
    """Returns a volume that a node can reach; of a claim, if one is given."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    spec: Body = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_,
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    if claim is not None:
        spec["claimRef"] = reference(claim)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Available"},
    }


def reference(claim: Body) -> Body:
    """Returns the reference to its claim in a volume."""
    named = {name: claim["metadata"][name] for name in ("namespace", "name", "uid")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **named}


def claim(name: str, class_: str, size: str) -> Body:
    """Returns a claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_,
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": "Pending"},
    }


def pod_with_claim(name: str, cores: int) -> Body:
    """Returns a pod that uses a claim."""
    body = pod(name, "plain", cores)
    source = {"claimName": f"data-{name.split('-')[1]}"}
    body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": source}]
    return body


def claims_of(body: Body) -> list[str]:
    """Returns the keys of a pod's claims."""
    volumes = body["spec"].get("volumes", ())
    return [f"{NAMESPACE}/{each['persistentVolumeClaim']['claimName']}" for each in volumes]


def node_of(body: Body) -> Any:
    """Returns the node that can reach a volume."""
    return body["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"][0]


def bound_by_controller(body: Body) -> bool:
    """Reports whether a program has chosen the claim of a volume."""
    return BOUND_BY_CONTROLLER in body["metadata"].get("annotations", {})
