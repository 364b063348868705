"""Block I/O: limits and weights by device, for best effort, single pods, and the node as a whole (cgroup v1). Source: spec/node-agent.md 3.7."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from services.node_agent.slo_spec import QosClass
from shared.domain.qos import QoS, raw_qos
from shared.errors import KoordError
from shared.kube.pod import Pod

ANNOTATION = "koordinator.sh/blkioQOS"
THROTTLES = {
    "blkio.throttle.read_bps_device": "readBPS",
    "blkio.throttle.read_iops_device": "readIOPS",
    "blkio.throttle.write_bps_device": "writeBPS",
    "blkio.throttle.write_iops_device": "writeIOPS",
}
WEIGHT, QOS, MODEL = "blkio.cost.weight", "blkio.cost.qos", "blkio.cost.model"
DEFAULT_WEIGHT = 100
_MODEL = {
    "rbps": "modelReadBPS",
    "rseqiops": "modelReadSeqIOPS",
    "rrandiops": "modelReadRandIOPS",
    "wbps": "modelWriteBPS",
    "wseqiops": "modelWriteSeqIOPS",
    "wrandiops": "modelWriteRandIOPS",
}


class UnknownDevice(KoordError):
    """A block that names nothing on this node; its target is left as it is."""

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
        """`MAJ:MIN` of a disk, of a partition's disk, of a logical volume's."""
        disk = self.partitions.get(device, device)
        if disk in self.disks:
            return self.disks[disk]
        group = self.logical.get(device)
        return self.disks.get(self.groups.get(group, "")) if group is not None else None


class Volumes(NamedTuple):
    """What a pod mounts.

    Attributes:
        claims: volume -> name of the PersistentVolume behind its claim.
        inline: names of its inline CSI volumes.
    """

    uid: str = ""
    claims: Mapping[str, str] = {}
    inline: frozenset[str] = frozenset()


Held = Mapping[str, Iterable[str]]
"""File -> its lines."""
Writes = dict[str, list[str]]
"""File -> lines to write."""


def of_class(stated: QosClass | None, storage: Storage, held: Held, *, root: bool = False) -> Writes:
    """What to write for a class: nothing when it says nothing; everything is taken away when it is disabled.

    Raises:
        UnknownDevice: one of its blocks names no device.
    """
    config = stated.blkio_qos if stated else None
    if config is None:
        return {}
    stated_blocks = config.get("blocks") if config.get("enable") else ()
    blocks = [each for each in stated_blocks if isinstance(each, dict)] if isinstance(stated_blocks, list) else ()
    return wanted(blocks, storage, Volumes(), held, root=root)


def of_pod(pod: Pod, storage: Storage, volumes: Volumes, held: Held) -> Writes:
    """What to write for a pod; nothing unless it runs, has a QoS class, and states blocks.

    Raises:
        UnknownDevice: one of its blocks names no device.
    """
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if text is None or pod.status.phase != "Running" or raw_qos(pod) is QoS.NONE:
        return {}
    try:
        config = msgspec.json.decode(text, type=_Stated) if text else _Stated()
    except msgspec.MsgspecError:
        return {}
    return wanted(config.blocks or (), storage, volumes, held, root=False)


class _Stated(msgspec.Struct):
    """A pod's annotation; what stands in a block is looked at block by block."""

    blocks: list[dict[str, Any]] | None = None


def wanted(
    blocks: Iterable[Mapping[str, Any]], storage: Storage, volumes: Volumes, held: Held, *, root: bool
) -> Writes:
    """Lines for the blocks, and those that reset devices which no block names any more.

    Raises:
        UnknownDevice: one of the blocks names no device.
    """
    writes: Writes = {}
    named: set[str] = set()
    for block in blocks:
        number = _number(block, storage, volumes)
        named.add(number)
        limits = block.get("ioCfg")
        limits = limits if isinstance(limits, dict) else {}
        for file, line in (_root_lines if root else _lines)(number, limits):
            writes.setdefault(file, []).append(line)
    files = (QOS,) if root else (*THROTTLES, WEIGHT)
    stale = {line.split(" ", 1)[0] for file in files for line in held.get(file, ()) if line.strip()} - named
    for number in sorted(stale):
        if root:
            writes.setdefault(QOS, []).append(f"{number} enable=0")
            continue
        for file, line in _lines(number, {}):
            writes.setdefault(file, []).append(line)
    return writes


def _lines(number: str, limits: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for file, name in THROTTLES.items():
        yield file, f"{number} {limits.get(name) or 0}"
    weight = limits.get("ioWeightPercent")
    yield WEIGHT, f"{number} {DEFAULT_WEIGHT if weight is None else weight}"


def _root_lines(number: str, limits: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    def of(name: str, otherwise: int) -> Any:
        found = limits.get(name)
        return otherwise if found is None else found

    read = f"rpct={of('readLatencyPercent', 95)} rlat={of('readLatency', 3000)}"
    write = f"wpct={of('writeLatencyPercent', 95)} wlat={of('writeLatency', 3000)}"
    yield QOS, f"{number} enable=1 ctrl=user {read} {write}"
    if limits.get("enableUserModel"):
        model = " ".join(f"{key}={of(name, 0)}" for key, name in _MODEL.items())
        yield MODEL, f"{number} ctrl=user {model}"
    else:
        yield MODEL, f"{number} ctrl=auto"


def _number(block: Mapping[str, Any], storage: Storage, volumes: Volumes) -> str:
    kind, name = str(block.get("type", "")), str(block.get("name", ""))
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
