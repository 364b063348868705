"""Nodes with devices, and pods that request some."""

from collections.abc import Mapping, Sequence

from shared.events.cluster import ObjectObserved
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.resource_names import DEVICES
from tests.support.scheduling_world import node, pod

CORE, MEMORY, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"
GPU, SHARED, RDMA = "koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/rdma"


def gpu_node(name: str = "n", gpus: int = 4, *, cpu: str = "64", labels: Mapping[str, str] | None = None) -> Node:
    """A node whose allocatable has what its GPUs and two network cards offer."""
    extra = {
        CORE: str(100 * gpus),
        RATIO: str(100 * gpus),
        MEMORY: f"{80 * gpus}Gi",
        GPU: str(100 * gpus),
        SHARED: "10000",
        "nvidia.com/gpu": str(gpus),
        RDMA: "200",
    }
    return node(name, cpu=cpu, memory="512Gi", extra=extra, labels=labels)


def devices(
    name: str = "n",
    gpus: int = 4,
    *,
    broken: Sequence[int] = (),
    rdma: int = 2,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> ObjectObserved:
    """The Device of a node: two GPUs and a network card below each PCIe switch, two switches a NUMA node."""
    listed = [
        {
            "type": "gpu",
            "id": f"GPU-{name}-{minor}",
            "minor": minor,
            "health": minor not in broken,
            "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"},
            "topology": {"socketID": 0, "nodeID": minor // 4, "pcieID": f"pcie-{minor // 2}"},
        }
        for minor in range(gpus)
    ]
    listed += [
        {
            "type": "rdma",
            "id": f"mlx5_{minor}",
            "minor": minor,
            "health": True,
            "resources": {RDMA: "100"},
            "topology": {"socketID": 0, "nodeID": minor // 2, "pcieID": f"pcie-{minor}"},
        }
        for minor in range(rdma)
    ]
    metadata = {"name": name, "uid": f"device-{name}", "labels": labels or {}, "annotations": annotations or {}}
    body = {"metadata": metadata, "spec": {"devices": listed}}
    return ObjectObserved(resource=DEVICES, name=name, uid=f"device-{name}", object=body)


def gpu_pod(
    name: str,
    requests: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    on: str = "",
    priority: int | None = None,
) -> Pod:
    return pod(
        name,
        cpu="1",
        memory="1Gi",
        extra=requests,
        annotations=annotations,
        on=on,
        phase="Running" if on else "Pending",
        priority=priority,
    )
