"""Paths on the host that the QoS manager reads and writes."""

from pathlib import Path
from typing import NamedTuple


class HostPaths(NamedTuple):
    """Paths on the host.

    Attributes:
        root: where cgroup hierarchies are mounted.
        parent: the cgroup above kubepods, relative to a controller's root.
        proc, sys: procfs and sysfs.
        logs: the kubelet's links to the logs of containers.
        kubelet: the kubelet's folder, below which it mounts volumes.
        terway: where Terway reads shares of the network.
        kubelet_config: the kubelet's configuration file.
    """

    root: Path
    parent: str
    sys: Path
    logs: Path
    proc: Path = Path("/proc")
    kubelet: Path = Path("/var/lib/kubelet")
    terway: Path = Path("/var/lib/terway/qos")
    kubelet_config: Path = Path("/var/lib/kubelet/config.yaml")
