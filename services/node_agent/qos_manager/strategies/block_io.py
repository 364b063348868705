"""Block I/O: limits and weights by device, for best effort, single pods, and the node as a whole (cgroup v1).

Source: spec/node-agent.md 3.7.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shared.agents.node_pods import BLOCK_IO, claims_of
from shared.domain.qos import QoS, raw_qos
from shared.errors import KoordError
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.slo_config import BlkioQos, Block, IoCfg, QosClass

THROTTLES = {
    "blkio.throttle.read_bps_device": "read_bps",
    "blkio.throttle.read_iops_device": "read_iops",
    "blkio.throttle.write_bps_device": "write_bps",
    "blkio.throttle.write_iops_device": "write_iops",
}
"""File -> the field of a block's configuration."""
WEIGHT, QOS, MODEL = "blkio.cost.weight", "blkio.cost.qos", "blkio.cost.model"
DEFAULT_WEIGHT = 100
_MODEL = {
    "rbps": "model_read_bps",
    "rseqiops": "model_read_seq_iops",
    "rrandiops": "model_read_rand_iops",
    "wbps": "model_write_bps",
    "wseqiops": "model_write_seq_iops",
    "wrandiops": "model_write_rand_iops",
}


class UnknownDevice(KoordError):
    """A block that names no device of this node; its target is left as it is."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"blkioQOS block {name!r} of type {kind!r} names no device of this node")


class Storage(NamedTuple):
    """The node's block devices.

    Attributes:
        disks: disk -> `MAJ:MIN`.
        partitions: partition -> disk.
        groups: volume group -> disk.
        logical: mapper of a logical volume -> volume group.
        mounts: mount point -> device.
        kubelet: the kubelet's folder, below which volumes of pods are mounted.
    """

    disks: Mapping[str, str]
    partitions: Mapping[str, str]
    groups: Mapping[str, str]
    logical: Mapping[str, str]
    mounts: Mapping[str, str]
    kubelet: str = "/var/lib/kubelet"

    def number(self, device: str) -> str | None:
        """Returns `MAJ:MIN` of a disk, of a partition's disk, of a logical volume's."""
        disk = self.partitions.get(device, device)
        if disk in self.disks:
            return self.disks[disk]
        group = self.logical.get(device)
        return self.disks.get(self.groups.get(group, "")) if group is not None else None


class Volumes(NamedTuple):
    """A pod's volumes.

    Attributes:
        claims: volume -> name of the PersistentVolume behind its claim.
        inline: names of its inline CSI volumes.
    """

    uid: str = ""
    claims: Mapping[str, str] = {}
    inline: frozenset[str] = frozenset()


def volumes_of(pod: Pod, claims: Mapping[str, str], inline: Iterable[str]) -> Volumes:
    """Returns a pod's volumes.

    Args:
        claims: `namespace/name` of a claim -> its PersistentVolume.
        inline: names of the CSI volumes that its node has mounted for it, those of claims included.
    """
    bound = {
        volume.name: claims[claim]
        for volume, claim in zip(pod.spec.volumes, claims_of(pod), strict=True)
        if claim in claims
    }
    return Volumes(pod.metadata.uid, bound, frozenset(inline) - frozenset(bound.values()))


CurrentLines = Mapping[str, Iterable[str]]
"""File -> its present lines."""
Writes = dict[str, list[str]]
"""File -> lines to write."""


def of_class(qos_class: QosClass | None, storage: Storage, current: CurrentLines, *, root: bool = False) -> Writes:
    """Returns the writes for a class: none without a configuration; one that is disabled resets all devices.

    Raises:
        UnknownDevice: one of its blocks names no device.
    """
    config = qos_class.blkio_qos if qos_class else None
    if config is None:
        return {}
    return desired_lines(config.blocks if config.enable else (), storage, Volumes(), current, root=root)


def of_pod(pod: Pod, storage: Storage, volumes: Volumes, current: CurrentLines) -> Writes:
    """Returns the writes for a pod; none unless it runs, has a QoS class, and has the annotation.

    Raises:
        UnknownDevice: one of its blocks names no device.
    """
    text = (pod.metadata.annotations or {}).get(BLOCK_IO)
    if text is None or pod.status.phase != "Running" or raw_qos(pod) is QoS.NONE:
        return {}
    try:
        config = read_json(text, BlkioQos) if text else BlkioQos()
    except msgspec.MsgspecError:
        return {}
    return desired_lines(config.blocks, storage, volumes, current, root=False)


def desired_lines(
    blocks: Iterable[Block], storage: Storage, volumes: Volumes, current: CurrentLines, *, root: bool
) -> Writes:
    """Returns lines for the blocks, and lines that reset devices which no block names any more.

    Raises:
        UnknownDevice: one of the blocks names no device.
    """
    writes: Writes = {}
    named: set[str] = set()
    for block in blocks:
        number = _number(block, storage, volumes)
        named.add(number)
        for file, line in (_root_lines if root else _lines)(number, block.io_cfg or IoCfg()):
            writes.setdefault(file, []).append(line)
    files = (QOS,) if root else (*THROTTLES, WEIGHT)
    stale = {line.split(" ", 1)[0] for file in files for line in current.get(file, ()) if line.strip()} - named
    for number in sorted(stale):
        if root:
            writes.setdefault(QOS, []).append(f"{number} enable=0")
            continue
        for file, line in _lines(number, IoCfg()):
            writes.setdefault(file, []).append(line)
    return writes


def _lines(number: str, limits: IoCfg) -> Iterable[tuple[str, str]]:
    for file, name in THROTTLES.items():
        yield file, f"{number} {getattr(limits, name) or 0}"
    yield WEIGHT, f"{number} {_value_or(limits.io_weight_percent, DEFAULT_WEIGHT)}"


def _root_lines(number: str, limits: IoCfg) -> Iterable[tuple[str, str]]:
    read = f"rpct={_value_or(limits.read_latency_percent, 95)} rlat={_value_or(limits.read_latency, 3000)}"
    write = f"wpct={_value_or(limits.write_latency_percent, 95)} wlat={_value_or(limits.write_latency, 3000)}"
    yield QOS, f"{number} enable=1 ctrl=user {read} {write}"
    if limits.enable_user_model:
        model = " ".join(f"{key}={getattr(limits, name) or 0}" for key, name in _MODEL.items())
        yield MODEL, f"{number} ctrl=user {model}"
    else:
        yield MODEL, f"{number} ctrl=auto"


def _value_or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _number(block: Block, storage: Storage, volumes: Volumes) -> str:
    kind, name = block.type, block.name
    found: str | None = None
    match kind:
        case "device":
            found = storage.disks.get(storage.partitions.get(name, name))
        case "volumegroup":
            found = storage.disks.get(storage.groups.get(name, ""))
        case "podvolume":
            folder = volumes.claims.get(name) or (name if name in volumes.inline else None)
            if folder is not None:
                mount = f"{storage.kubelet}/pods/{volumes.uid}/volumes/kubernetes.io~csi/{folder}/mount"
                found = storage.number(storage.mounts.get(mount, ""))
    if found is None:
        raise UnknownDevice(kind, name)
    return found
