"""NodeResourceTopologies on a real API server."""

import json
from typing import Any

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"


def topology(node: str, reserved: str) -> dict[str, Any]:
    """Returns the NodeResourceTopology as koordlet writes it, for a machine with two sockets, each a NUMA node with 4
    cores of 2 threads and 16 GiB.
    """
    detail = [{"id": cpu, "core": cpu // 2, "socket": cpu // 8, "node": cpu // 8} for cpu in range(16)]
    amounts = [
        {"name": name, "capacity": size, "allocatable": size, "available": size}
        for name, size in (("cpu", "8"), ("memory", "16Gi"))
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "annotations": {
                "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
                "kubelet.koordinator.sh/cpu-manager-policy": json.dumps({"policy": "none", "reservedCPUs": reserved}),
            },
        },
        "topologyPolicies": ["None"],
        "zones": [{"name": f"node-{zone}", "type": "Node", "resources": amounts} for zone in range(2)],
    }
