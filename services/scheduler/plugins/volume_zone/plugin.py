"""VolumeZone: a bound volume with zone or region labels is used there only.

A label can have several values, joined by `__`. On a node without any zone or region label every volume is usable.

Source: spec/scheduler-core.md 2.2; upstream Kubernetes pkg/scheduler/framework/plugins/volumezone.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.cache.node_label_columns import ABSENT
from services.scheduler.cache.plugin_cache import PluginCache
from services.scheduler.framework.plugin_base import Plugin
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.framework.plugin_spec import PluginSpec
from services.scheduler.framework.reasons import Reason
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.plugins.helper.volume_claims import claims_of
from services.scheduler.plugins.helper.volume_cycle_state_base import ClaimsCycleState
from services.scheduler.plugins.volume_zone import SPEC
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.kube.selectors import Requirement

NEWER: Mapping[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Deprecated label -> its present name."""

LABELS = (*NEWER, *NEWER.values())


class VolumeZone(Plugin):
    """Rejects nodes outside of the zones of the pod's volumes."""

    spec: ClassVar[PluginSpec] = SPEC

    def new_state(self, snapshot: CycleSnapshot, plugin_cache: PluginCache | None, now_ns: int) -> PluginCycleState:  # noqa: ARG002
        """Filter result 1: another zone."""
        return _VolumeZoneState(snapshot)

    def reasons(self, pod_class: PodClass, result: int) -> tuple[Reason, ...]:  # noqa: ARG002
        """The only reason of the plugin."""
        return (Reason("VolumeZoneConflict"),)

    def unresolvable(self, pod_class: PodClass, result: int) -> bool:  # noqa: ARG002
        """Preemption cannot help: it moves no volume."""
        return True


class _VolumeZoneState(ClaimsCycleState):
    """State of the plugin for one cycle."""

    def evaluate(self, pod_class: PodClass) -> Int64 | None:
        """None for a pod without volumes that have a zone."""
        labels, size = self._snapshot.table.labels, self._snapshot.size
        labels_of_volumes = [
            (key, tuple(value.split("__")))
            for _, volume in claims_of(pod_class, self._snapshot.cluster_objects.storage).bound
            if volume is not None
            for key, value in (volume.metadata.labels or {}).items()
            if key in LABELS
        ]
        if not labels_of_volumes:
            return None
        zoned = np.zeros(size, np.bool_)
        for key in LABELS:
            zoned |= labels.numbers(key, size)[0] != ABSENT
        refused = np.zeros(size, np.bool_)
        for key, values in labels_of_volumes:
            there = labels.matches(Requirement(key=key, operator="In", values=values), size)
            newer = NEWER.get(key)
            if newer is not None:  # a node that has only the newer label is matched by that one
                has_older = labels.numbers(key, size)[0] != ABSENT
                by_newer = labels.matches(Requirement(key=newer, operator="In", values=values), size)
                there = np.where(has_older, there, by_newer)
            refused |= ~there
        return (refused & zoned).astype(np.int64)
