"""VolumeRestrictions: disks that one node at a time may write, and claims that one pod at a time may use.

A claim that waits for its volume belongs to the node of a pod that uses it, from the placement of that pod on: upstream
writes the node into its own copy of the claim, here the pods that count on nodes say it.

Source: spec/scheduler-core.md 2.2; upstream Kubernetes pkg/scheduler/framework/plugins/volumerestrictions.
"""

from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.volume_claims import claim_keys
from services.scheduler.plugins.helper.volume_cycle_state_base import VolumeCycleState
from services.scheduler.plugins.helper.volume_ref_counts import Disk, VolumeRefCounts, change_in, disks_of
from services.scheduler.plugins.volume_restrictions import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord

_DISK, _CLAIM, _OTHER_NODE = 1, 2, 3
_CODES = {_DISK: "DiskConflict", _CLAIM: "ClaimInUse", _OTHER_NODE: "ClaimOnOtherNode"}


class VolumeRestrictions(Plugin):
    """Rejects nodes with a conflicting mount of a disk, every node while a ReadWriteOncePod claim is in use, and all nodes
    but that of its users while a claim waits for its volume.
    """

    spec: ClassVar[PluginSpec] = SPEC

    def new_cache(self) -> PluginCache:
        """The claims and disks in use."""
        return VolumeRefCounts()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter results 1: a disk; 2: a claim; 3: a claim whose volume is made for another node."""
        assert isinstance(plugin_cache, VolumeRefCounts), "the index hands back what new_cache made"
        return VolumeRestrictionsState(snapshot, plugin_cache)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The disk or the claim that is in use."""
        return (Reason(_CODES[result]),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption moves no volume."""
        return result == _OTHER_NODE


class VolumeRestrictionsState(VolumeCycleState):
    """State of the plugin for one cycle."""

    def __init__(self, snapshot: CycleSnapshot, plugin_cache: VolumeRefCounts) -> None:
        super().__init__(snapshot)
        self._plugin_cache = plugin_cache
        self._users: dict[str, dict[int, int]] = {}  # claim -> row -> change of its users since the cycle began
        self._disks: dict[int, dict[Disk, int]] = {}  # likewise, by row
        self._placed = 0

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a pod that no disk and no claim keeps off a node."""
        if not pod_class.pod.spec.volumes:
            return None
        disks = disks_of(pod_class)
        results = np.zeros(self._snapshot.size, np.int64)
        if disks:
            for row in (*self._plugin_cache.disks, *self._disks):
                mounted, moved = self._plugin_cache.disks.get(row, {}), self._disks.get(row, {})
                there = [disk for disk in (*mounted, *moved) if mounted.get(disk, 0) + moved.get(disk, 0) > 0]
                if any(disk.conflicts(other) for disk in disks for other in there):
                    results[row] = _DISK
        self._restrict_to_users(pod_class, results)
        return results[rows] if results.any() else None

    def _restrict_to_users(self, pod_class: PodClass, results: Int64) -> None:
        """Rejects nodes for the claims of a class that other pods use; results: [all rows], written to."""
        storage = self._snapshot.cluster_objects.storage
        for key in claim_keys(pod_class):
            users, moved = self._plugin_cache.users.get(key, {}), self._users.get(key, {})
            there = [row for row in (users | moved) if users.get(row, 0) + moved.get(row, 0) > 0]
            claim = storage.claims.get(key)
            if not there or claim is None:
                continue
            if "ReadWriteOncePod" in claim.spec.access_modes:
                results[results == 0] = _CLAIM
            elif storage.waits_for_node(claim):
                others = results == 0
                others[there] = False
                results[others] = _OTHER_NODE

    def revision(self, pod_class: PodClass) -> int:
        """The number of pods with volumes that the cycle has placed, removed or undone."""
        return self._placed if pod_class.pod.spec.volumes else 0

    def ignores_own_placements(self, pod_class: PodClass) -> bool:
        """Returns True for a class of pods without volumes."""
        return not pod_class.pod.spec.volumes

    def counts(self, pod_class: PodClass) -> bool:
        """Returns True for a class of pods with volumes."""
        return bool(pod_class.pod.spec.volumes)

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Counts the volumes of the pod."""
        self.move(pod_class, row, terminating=False, sign=1)

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:  # noqa: ARG002 (ending pods have volumes)
        """Counts the volumes of one more pod, or of one less."""
        self._placed += 1
        for claim in claim_keys(pod_class):
            change_in(self._users, claim, row, sign)
        for disk in disks_of(pod_class):
            change_in(self._disks, row, disk, sign)

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Counts the volumes of the pod no longer."""
        self.move(pod_class, row, terminating=False, sign=-1)
