"""The configuration files of a node's programs.

Everything is in one folder or on 127.0.0.1; other settings keep their defaults.
"""

import json
from pathlib import Path
from typing import NamedTuple

CONTAINERD = """\
version = 3
root = "{folder}/containerd"
state = "{folder}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs"]

[grpc]
  address = "{folder}/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{image}"

[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{folder}/cni"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = "{shim}"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
  Root = "{folder}/runc"
  SystemdCgroup = false

[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = "{folder}/nri.sock"
  plugin_path = "{folder}/nri"
  plugin_config_path = "{folder}/nri"

[plugins.'io.containerd.internal.v1.opt']
  path = "{folder}/opt"
"""
CNI = {"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}
EVICTION = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree")


class Programs(NamedTuple):
    """Where a node's programs are."""

    kubelet: Path
    containerd: Path
    shim: Path
    ctr: Path
    runc: Path
    loopback: Path
    workload: Path


def write_containerd(folder: Path, programs: Programs, image: str) -> Path:
    """Writes containerd's configuration, with NRI and a network that has loopback alone; returns its path."""
    (folder / "cni").mkdir()
    (folder / "cni" / "10-loopback.conflist").write_text(json.dumps(CNI))
    text = CONTAINERD.format(
        folder=folder, image=image, plugins=programs.loopback.parent, shim=programs.shim, runc=programs.runc
    )
    path = folder / "containerd.toml"
    path.write_text(text)
    return path


def write_kubelet(folder: Path, *, cgroup_root: str, port: int, health_port: int, runtime: Path) -> Path:
    """Writes a kubelet's configuration; returns its path. It evicts nothing itself: that is the agent's to show.

    Args:
        cgroup_root: with its leading slash.
        runtime: socket of its container runtime.
    """
    (folder / "static").mkdir()
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": health_port,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{runtime}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": dict.fromkeys(EVICTION, "0%"),
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": f"{folder}/pods",
        "staticPodPath": f"{folder}/static",
        "volumePluginDir": f"{folder}/plugins",
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "2s",
    }
    path = folder / "kubelet.json"
    path.write_text(json.dumps(config, indent=1))
    return path
