"""Runs block I/O."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from services.node_agent.qos_manager import strategies
from services.node_agent.qos_manager.strategies.block_io import Storage, UnknownDevice, Volumes, Writes
from shared.kube.pod import Pod
from shared.kube.slo_config import ResourceQos


def block_io(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `blkio`."""
    stored = given["storage"]
    storage = Storage(
        stored.get("disks", {}),
        stored.get("partitions", {}),
        stored.get("volumeGroups", {}),
        stored.get("logicalVolumes", {}),
        stored.get("mounts", {}),
    )
    held = {
        target: {file: text.split("\n") for file, text in files.items()} for target, files in given["existing"].items()
    }
    strategy = msgspec.convert(given["resourceQOSStrategy"], ResourceQos)
    pod, volumes = msgspec.convert(given["pod"], Pod), _volumes(given)
    return {
        "writes": {
            "besteffort": _lines(lambda: strategies.block_io.of_class(strategy.be_class, storage, held["besteffort"])),
            "root": _lines(
                lambda: strategies.block_io.of_class(strategy.cgroup_root, storage, held["root"], root=True)
            ),
            "pod": _lines(lambda: strategies.block_io.of_pod(pod, storage, volumes, held["pod"])),
        }
    }


def _volumes(given: Mapping[str, Any]) -> Volumes:
    raw = given["pod"]
    claims, inline = {}, set()
    for volume in raw["spec"].get("volumes", ()):
        if claim := volume.get("persistentVolumeClaim"):
            key = f"{raw['metadata']['namespace']}/{claim['claimName']}"
            if name := given.get("persistentVolumes", {}).get(key):
                claims[volume["name"]] = name
        elif "csi" in volume:
            inline.add(volume["name"])
    return Volumes(raw["metadata"]["uid"], claims, frozenset(inline))


def _lines(write: Callable[[], Writes]) -> dict[str, list[str]]:
    try:
        return {file: sorted(lines) for file, lines in write().items()}
    except UnknownDevice:
        return {}
