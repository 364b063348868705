"""Where the pods that the agent knows lie in cgroups, and their containers. Source: spec/node-agent.md 2.1."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from services.node_agent.qos_manager.strategies.node_pod import NodePod
from shared.kube.pod import Pod

_ID = re.compile(r"(?:(?:docker|cri-containerd|pouch|crio)-)?([0-9a-f]{16,64})(?:\.scope)?").fullmatch


class PodCgroups(NamedTuple):
    """A pod with its cgroup.

    Attributes:
        folder: of the pod, relative to a controller's root.
        containers: id -> folder of each cgroup in it, that of the sandbox included.
        seen: the pod as strategies see it: ids of containers by name; those that have a cgroup run.
    """

    folder: str
    containers: Mapping[str, str]
    seen: NodePod

    @property
    def pod(self) -> Pod:
        """The pod."""
        return self.seen.pod

    @property
    def labels(self) -> dict[str, str]:
        """The pod, as series name it."""
        meta = self.pod.metadata
        return {"pod_uid": meta.uid, "pod_namespace": meta.namespace, "pod_name": meta.name}

    def labels_of(self, container: str) -> dict[str, str]:
        """A container of it, as series name it; without an id while it has no cgroup."""
        return {**self.labels, "container_id": self.seen.ids.get(container, ""), "container_name": container}


def containers(root: Path, folder: str) -> dict[str, str]:
    """Id -> folder of each container's cgroup below a pod's."""
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
    """A pod with what was found of it.

    Args:
        cgroups: as `containers` gives them.
        names: id -> (`namespace/name` of the pod, name of the container).
    """
    ids = {names[cid][1]: cid for cid in cgroups if cid in names and names[cid][0] == pod.metadata.key}
    return PodCgroups(folder, cgroups, NodePod(pod, ids, frozenset(ids)))
