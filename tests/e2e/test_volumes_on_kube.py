"""Volumes on a real API server with Kubernetes' own volume controllers: pods are bound where their volumes are, and
volumes are provisioned where their pods are.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.local_control_plane import Cluster
from tests.cluster.fixtures import StartCluster
from tests.e2e.stage import HOST, Stage, pod
from tests.support.kube_system import koord, running
from tests.support.waiting import in_thread, until

ZONE = "topology.kubernetes.io/zone"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SELECTED = "volume.kubernetes.io/selected-node"


def storage_class(name: str, provisioner: str, mode: str, **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode, **more,
    }  # fmt: skip


def volume(
    name: str,
    class_: str,
    *,
    node: str = "",
    zone: str = "",
    size: str = "10Gi",
    mode: str = "ReadWriteOnce",
    claim: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """Creates a volume that is accessible from one node, or from the nodes of a zone."""
    key, value = (HOST, node) if node else (ZONE, zone)
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    spec: dict[str, Any] = {
        "capacity": {"storage": size}, "accessModes": [mode], "storageClassName": class_,
        "csi": {"driver": "made.example.com", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }  # fmt: skip
    if claim is not None:
        spec["claimRef"] = {"namespace": claim[0], "name": claim[1]}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def claim(name: str, class_: str, mode: str = "ReadWriteOnce", size: str = "5Gi") -> dict[str, Any]:
    spec = {"accessModes": [mode], "storageClassName": class_, "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def uses(name: str, *claims: str, on: str = "") -> dict[str, Any]:
    """Returns a pod with these claims."""
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, "500m", "1Gi", on=on, volumes=volumes)


async def test_pods_and_volumes_come_together_on_one_node(own_cluster: StartCluster, tmp_path: Path) -> None:
    cluster: Cluster = await asyncio.to_thread(own_cluster, installed=True)
    await asyncio.to_thread(cluster.create_namespace, "shop")
    stage = Stage(cluster, "shop", lambda *_, **__: [])
    nodes = [node_object(name, labels={ZONE: f"zone-{name[0]}"}) for name in ("a1", "a2", "b1", "b2")]
    await asyncio.to_thread(create_nodes, cluster.api, nodes)
    for each in (
        storage_class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        storage_class("made", "made.example.com", "WaitForFirstConsumer"),
        storage_class("at-once", "kubernetes.io/no-provisioner", "Immediate"),
    ):
        await stage.call("POST", CLASSES, each)
    await asyncio.to_thread(cluster.start_controllers)
    async with running(cluster, tmp_path) as system:
        await _bound_before(stage)
        await _chosen_among_existing(stage)
        await _made_for_the_node(stage)
        await _one_pod_at_a_time(stage)
        await koord(system, "audit", "verify")


def _claim_is(stage: Stage, name: str, condition: Callable[[dict[str, Any]], Any]) -> Callable[[], Any]:
    return lambda: condition(stage.cluster.api.call("GET", stage.path("persistentvolumeclaims", name)))


async def _bound(stage: Stage, name: str) -> str:
    """Waits until the volume controller has bound the claim. Returns its volume."""
    found = _claim_is(stage, name, lambda one: one["status"].get("phase") == "Bound" and one["spec"]["volumeName"])
    return str(await until(in_thread(found), f"volume for {name}"))


async def _bound_before(stage: Stage) -> None:
    """Checks a claim that is bound already: its volume restricts the pod to the nodes from which it is accessible."""
    await stage.create(uses("early", "data"))
    assert 'persistentvolumeclaim "data" not found' in await stage.unschedulable("early")
    await stage.call("POST", VOLUMES, volume("in-zone-b", "at-once", zone="zone-b"))
    await stage.create(claim("data", "at-once"), kind="persistentvolumeclaims")
    assert await _bound(stage, "data") == "in-zone-b"
    assert await stage.placed("early") in {"b1", "b2"}, "requeued by its claim"
    await stage.create(uses("elsewhere", "data", on="a1"))
    reported = await stage.unschedulable("elsewhere")
    assert "didn't match PersistentVolume's node affinity" in reported, reported


async def _chosen_among_existing(stage: Stage) -> None:
    """Checks a claim that waits for its pod: the smallest existing volume that fits on the pod's node is chosen."""
    for name, node, size in (("disk-a1", "a1", "8Gi"), ("disk-a1-large", "a1", "80Gi"), ("disk-b2", "b2", "20Gi")):
        await stage.call("POST", VOLUMES, volume(name, "local", node=node, size=size))
    await stage.create(claim("small", "local"), claim("large", "local", size="15Gi"), kind="persistentvolumeclaims")
    await stage.create(uses("on-a1", "small", on="a1"))
    assert await stage.placed("on-a1") == "a1"
    assert await _bound(stage, "small") == "disk-a1"
    await stage.create(uses("nowhere", "large", on="a2"))
    assert "didn't find available persistent volumes to bind" in await stage.unschedulable("nowhere")
    await stage.remove("nowhere")
    await stage.create(uses("on-b2", "large", on="b2"))
    assert await stage.placed("on-b2") == "b2"
    assert await _bound(stage, "large") == "disk-b2"


async def _made_for_the_node(stage: Stage) -> None:
    """Checks a claim whose class provisions volumes: the chosen node is written to it, and the pod is bound once the
    volume exists.
    """
    await stage.create(claim("fresh", "made"), kind="persistentvolumeclaims")
    await stage.create(uses("waits", "fresh"))
    node = await until(
        in_thread(_claim_is(stage, "fresh", lambda one: one["metadata"].get("annotations", {}).get(SELECTED))),
        "selected node",
    )
    assert node in {"a1", "a2", "b1", "b2"}
    assert "nodeName" not in stage.pod("waits")["spec"]
    # This is the work of the driver's provisioner.
    await stage.call("POST", VOLUMES, volume("made-1", "made", node=node, claim=(stage.namespace, "fresh")))
    assert await _bound(stage, "fresh") == "made-1"
    assert await stage.placed("waits") == node


async def _one_pod_at_a_time(stage: Stage) -> None:
    """Checks ReadWriteOncePod: a second pod waits until the first is gone, on every node."""
    await stage.call("POST", VOLUMES, volume("private", "at-once", zone="zone-a", mode="ReadWriteOncePod"))
    await stage.create(claim("own", "at-once", "ReadWriteOncePod"), kind="persistentvolumeclaims")
    assert await _bound(stage, "own") == "private"
    await stage.create(uses("first", "own"))
    assert await stage.placed("first") in {"a1", "a2"}
    await stage.create(uses("second", "own"))
    reported = await stage.unschedulable("second")
    assert "ReadWriteOncePod" in reported, reported
    await stage.remove("first")
    assert await stage.placed("second") in {"a1", "a2"}
