"""Cgroup paths of the node's pods and their containers. Source: spec/node-agent.md 2.1."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from services.node_agent.qos_manager.strategies.pod_containers import NodePod
from shared.kube.pod import Pod

_ID = re.compile(r"(?:(?:docker|cri-containerd|pouch|crio)-)?([0-9a-f]{16,64})(?:\.scope)?").fullmatch


class PodCgroups(NamedTuple):
    """A pod with its cgroup.

    Attributes:
        folder: of the pod, relative to a controller's root.
        containers: id -> folder of each cgroup in it, that of the sandbox included.
        node_pod: the pod for the strategies: ids of its containers by name; those with a cgroup count as running.
    """

    folder: str
    containers: Mapping[str, str]
    node_pod: NodePod

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.node_pod.pod

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the pod in metrics."""
        meta = self.pod.metadata
        return {"pod_uid": meta.uid, "pod_namespace": meta.namespace, "pod_name": meta.name}

    def labels_of(self, container: str) -> dict[str, str]:
        """The labels of one of its containers in metrics; the id is empty while it has no cgroup."""
        return {**self.labels, "container_id": self.node_pod.ids.get(container, ""), "container_name": container}


def containers(root: Path, folder: str) -> dict[str, str]:
    """Returns id -> folder of each container's cgroup below a pod's."""
    found = {}
    try:
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                if (match := _ID(entry.name)) and entry.is_dir():
                    found[match[1]] = f"{folder}/{entry.name}"
    except OSError:
        return {}
    return found


def pod_cgroups(pod: Pod, folder: str, cgroups: Mapping[str, str], names: Mapping[str, tuple[str, str]]) -> PodCgroups:
    """Returns a pod with its cgroups.

    Args:
        cgroups: as `containers` returns them.
        names: id -> (`namespace/name` of the pod, name of the container).
    """
    ids = {names[cid][1]: cid for cid in cgroups if cid in names and names[cid][0] == pod.metadata.key}
    return PodCgroups(folder, cgroups, NodePod(pod, ids, frozenset(ids)))
