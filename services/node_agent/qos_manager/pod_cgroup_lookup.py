"""Finds the cgroups of the node's pods and containers, and notices cgroups that are gone."""

import os
from collections.abc import Mapping

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups, containers, pod_cgroups
from services.node_agent.qos_manager.enforcers.cpu_suppress import BestEffortCgroups
from services.node_agent.qos_manager.host_paths import HostPaths
from services.node_agent.qos_plugins.qos_plugins import QosPlugins
from services.node_agent.states_informer.container_names_from_log_links import container_names
from shared.agents.node_pods import NodePods
from shared.kube.instants import SECOND

CGROUP_POLL_INTERVAL_NS = 5 * SECOND
"""Nanoseconds within which a pod's new containers are found."""


class PodCgroupLookup:
    """The pods of the node with their cgroups.

    Attributes:
        pods: found by the last `refresh`; a new list whenever cgroups were looked up.
        names: id -> (`namespace/name` of the pod, name) of each container with a log, as of the last look.
        removed: folders that the last `refresh` did not find any more.
    """

    def __init__(self, paths: HostPaths) -> None:
        self.pods: list[PodCgroups] = []
        self.names: dict[str, tuple[str, str]] = {}
        self.removed: set[str] = set()
        self._paths = paths
        self._inputs: tuple[object, ...] = ()
        self._period = -1

    def refresh(
        self,
        node_pods: NodePods | None,
        slo: object,
        folders: Mapping[str, str],
        version: int,
        now_ns: int,
        plugins: QosPlugins | None = None,
    ) -> bool:
        """Looks cgroups up when inputs have changed, and at intervals; reports whether anything is new.

        Args:
            slo: the NodeSLO message in force; another one counts as a change.
            folders: uid -> folder of each pod, below the kubelet's cgroup.
            version: of cgroups.
            plugins: give pods settings in place of their owners.
        """
        self.removed = set()
        inputs, period = (node_pods, slo, frozenset(folders)), now_ns // CGROUP_POLL_INTERVAL_NS
        if (inputs, period) == (self._inputs, self._period):
            return False
        before, changed = self.pods, inputs != self._inputs
        self._inputs, self._period = inputs, period
        base = self._paths.root / "cpu" if version == 1 else self._paths.root
        self.names = container_names(self._paths.logs)
        if plugins is not None:
            plugins.refresh_config()
        self.pods = []
        for pod in node_pods.pods if node_pods is not None else ():
            if (folder := folders.get(pod.metadata.uid)) is not None:
                whole = os.path.join(self._paths.parent, folder)  # noqa: PTH118
                known = pod if plugins is None else plugins.with_policies(pod)
                self.pods.append(pod_cgroups(known, whole, containers(base, whole), self.names))
        self.removed = _folders(before) - _folders(self.pods)
        return changed or before != self.pods


def _folders(pods: list[PodCgroups]) -> set[str]:
    return {folder for each in pods for folder in (each.folder, *each.containers.values())}


def best_effort_cgroups(paths: HostPaths, top: str, version: int) -> BestEffortCgroups:
    """Lists the cgroups of best effort from the file system, also those of pods that ingest has not published yet.

    Args:
        top: the cgroup that holds best-effort pods.
        version: of cgroups.
    """
    base = paths.root / "cpuset" if version == 1 else paths.root
    found = {}
    try:
        names = os.listdir(base / top)  # noqa: PTH208
    except OSError:
        names = []
    for name in names:
        if "pod" in name and (base / top / name).is_dir():
            folder = f"{top}/{name}"
            uid = name.partition("pod")[2].removesuffix(".slice").replace("_", "-")
            found[uid] = (folder, tuple(containers(base, folder).values()))
    return BestEffortCgroups(top, found)
