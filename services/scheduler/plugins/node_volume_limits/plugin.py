"""NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node.

    rejected if  volumes of the driver there + volumes of the pod that are not there  >  the CSINode's limit

A volume that several pods of a node use counts once. One that is not provisioned yet counts under its claim.

Source: spec/scheduler-core.md 2.2; upstream Kubernetes pkg/scheduler/framework/plugins/nodevolumelimits/csi.go.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.cache.volume_catalog import VolumeCatalog
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.volume_claims import claim_keys
from services.scheduler.plugins.helper.volume_cycle_state_base import VolumeCycleState
from services.scheduler.plugins.helper.volume_ref_counts import VolumeRefCounts, change
from services.scheduler.plugins.node_volume_limits import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord

DriverVolume = tuple[str, str]
"""(driver, handle of the volume or name of its claim)."""


class NodeVolumeLimits(Plugin):
    """Rejects nodes that cannot attach the pod's volumes in addition to those that they have."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_cache(self) -> PluginCache:
        """The claims in use, by node."""
        return VolumeRefCounts()

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter result 1: too many volumes."""
        assert isinstance(plugin_cache, VolumeRefCounts), "the index hands back what new_cache made"
        return NodeVolumeLimitsState(snapshot, plugin_cache)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The only reason of the plugin."""
        return (Reason("TooManyVolumes"),)


class NodeVolumeLimitsState(VolumeCycleState):
    """State of the plugin for one cycle. It evaluates only nodes with a limit on one of the pod's drivers."""

    def __init__(self, snapshot: CycleSnapshot, plugin_cache: VolumeRefCounts) -> None:
        super().__init__(snapshot)
        self._storage = snapshot.cluster_objects.storage
        self._plugin_cache = plugin_cache
        # row -> claim -> change of the number of pods there that use it since the cycle began
        self._moved: dict[int, dict[str, int]] = {}
        self._limits: dict[str, dict[int, int]] | None = None

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a pod that no limit concerns."""
        volumes = self._volumes(claim_keys(pod_class))
        if not volumes:
            return None
        concerned = {row for driver, _ in volumes for row in self._limits_of(driver)}
        if not concerned:
            return None
        results = np.zeros(self._snapshot.size, np.int64)
        for row in concerned:
            results[row] = self._evaluate(volumes, row)
        return results[rows] if results.any() else None

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The filter result of one node."""
        keys = claim_keys(pod_class)
        return self._evaluate(self._volumes(keys), row) if keys else 0

    def counts(self, pod_class: PodClass) -> bool:
        """Returns True for a class of pods with claims."""
        return bool(claim_keys(pod_class))

    def place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Counts the claims of the pod on the node."""
        self.move(pod_class, row, terminating=False, sign=1)

    def move(self, pod_class: PodClass, row: int, *, terminating: bool, sign: int) -> None:  # noqa: ARG002 (ending pods have volumes)
        """Counts the claims of one more pod on the node, or of one less."""
        moved = self._moved.setdefault(row, {})
        for claim in claim_keys(pod_class):
            change(moved, claim, sign)
        if not moved:
            del self._moved[row]

    def undo_place(self, pod: PodRecord, pod_class: PodClass, row: int) -> None:  # noqa: ARG002
        """Counts the claims of the pod no longer."""
        self.move(pod_class, row, terminating=False, sign=-1)

    def _evaluate(self, volumes: dict[DriverVolume, None], row: int) -> int:
        drivers = {driver for driver, _ in volumes if row in self._limits_of(driver)}
        if not drivers:
            return 0
        held, moved = self._plugin_cache.claims.get(row, {}), self._moved.get(row, {})
        there = self._volumes(claim for claim in (*held, *moved) if held.get(claim, 0) + moved.get(claim, 0) > 0)
        for driver in drivers:
            has = sum(held == driver for held, _ in there)
            new = sum(volume[0] == driver and volume not in there for volume in volumes)
            if new and has + new > self._limits_of(driver)[row]:
                return 1
        return 0

    def _volumes(self, claims: Iterable[str]) -> dict[DriverVolume, None]:
        found = (_driver_volume(key, self._storage) for key in claims)
        return dict.fromkeys(volume for volume in found if volume is not None)

    def _limits_of(self, driver: str) -> Mapping[int, int]:
        """Row -> limit of the driver there."""
        if self._limits is None:
            self._limits = {}
            for name, node in self._storage.nodes.items():
                row = self._snapshot.table.rows.get(name)
                for each in node.spec.drivers if row is not None else ():
                    if each.allocatable is not None and each.allocatable.count is not None and row is not None:
                        self._limits.setdefault(each.name, {})[row] = each.allocatable.count
        return self._limits.get(driver, {})


def _driver_volume(key: str, storage: VolumeCatalog) -> DriverVolume | None:
    """The driver and volume of a claim, None where no CSI driver is known."""
    claim = storage.claims.get(key)
    if claim is None:
        return None
    if claim.spec.volume_name:
        volume = storage.volumes.get(claim.spec.volume_name)
        if volume is not None:
            csi = volume.spec.csi
            return None if csi is None else (csi.driver, csi.volume_handle)
    class_ = storage.class_of(claim)
    return None if class_ is None or not class_.provisioner else (class_.provisioner, f"claim {key}")
