"""Claims and disks that pods on nodes use, by node and in all; every assignment and release moves the counts."""

from typing import NamedTuple, TypeVar

from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.plugins.helper.volume_claims import claim_keys
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment
from shared.kube.pod import Volume

K = TypeVar("K")
G = TypeVar("G")


class Disk(NamedTuple):
    """A disk that cannot be shared freely, as a pod mounts it.

    Attributes:
        kind: gce, aws, iscsi or rbd.
        identity: equal for mounts of one disk.
        monitors: of a Ceph image; two mounts that share a monitor are of one image.
        read_only: read-only mounts do not conflict; an Amazon disk is never shared.
    """

    kind: str
    identity: tuple[str, ...]
    monitors: tuple[str, ...]
    read_only: bool

    def conflicts(self, other: "Disk") -> bool:
        """Returns True where both cannot be mounted on one node."""
        if (self.kind, self.identity) != (other.kind, other.identity) or (self.read_only and other.read_only):
            return False
        return self.kind != "rbd" or not set(self.monitors).isdisjoint(other.monitors)


def disks_of(pod_class: PodClass) -> tuple[Disk, ...]:
    """The disks of a class."""
    disks: tuple[Disk, ...] | None = pod_class.cached.get(Disk)
    if disks is None:
        disks = pod_class.cached[Disk] = tuple(disk for volume in pod_class.pod.spec.volumes for disk in _disks(volume))
    return disks


def _disks(volume: Volume) -> list[Disk]:
    found = []
    if gce := volume.gce_persistent_disk:
        found.append(Disk("gce", (gce.pd_name,), (), gce.read_only))
    if aws := volume.aws_elastic_block_store:
        found.append(Disk("aws", (aws.volume_id,), (), read_only=False))
    if iscsi := volume.iscsi:
        found.append(Disk("iscsi", (iscsi.iqn,), (), iscsi.read_only))
    if rbd := volume.rbd:
        found.append(Disk("rbd", (rbd.pool, rbd.image), rbd.monitors, rbd.read_only))
    return found


class VolumeRefCounts(PluginCache):
    """Counts of the uses.

    Attributes:
        claims: row -> claim -> number of pods there that use it.
        users: claim -> row -> number of pods there that use it.
        disks: row -> disk -> number of pods there that mount it so.
    """

    def __init__(self) -> None:
        self.claims: dict[int, dict[str, int]] = {}
        self.users: dict[str, dict[int, int]] = {}
        self.disks: dict[int, dict[Disk, int]] = {}

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True for a class of pods with volumes."""
        return bool(pod_class.pod.spec.volumes)

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002 (uses are counted, not whose they are)
        """Counts the volumes of the pod."""
        self._count(row, assignment.pod_class, 1)

    def release(self, row: int, uid: str, assignment: Assignment) -> None:  # noqa: ARG002
        """Counts the volumes of the pod no longer."""
        self._count(row, assignment.pod_class, -1)

    def _count(self, row: int, pod_class: PodClass, sign: int) -> None:
        for claim in claim_keys(pod_class):
            change_in(self.users, claim, row, sign)
            change_in(self.claims, row, claim, sign)
        for disk in disks_of(pod_class):
            change_in(self.disks, row, disk, sign)


def change(counts: dict[K, int], key: K, by: int) -> None:
    """Changes a count; one that becomes 0 is left out."""
    after = counts.get(key, 0) + by
    if after:
        counts[key] = after
    else:
        del counts[key]


def change_in(groups: dict[G, dict[K, int]], group: G, key: K, by: int) -> None:
    """Changes a count of a group; a group without counts is left out."""
    counts = groups.setdefault(group, {})
    change(counts, key, by)
    if not counts:
        del groups[group]
