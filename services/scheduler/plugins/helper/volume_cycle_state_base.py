"""Common parts of the states of the volume plugins: none scores, and those of claims evaluate a class once in a cycle."""

from abc import ABC, abstractmethod

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.framework.plugin_extension_points import PluginCycleState
from services.scheduler.kernels.array_types_and_row_selection import Int64, Rows
from services.scheduler.plugins.helper.volume_claims import claim_keys
from services.scheduler.state.pod_equivalence_class import PodClass


class VolumeCycleState(PluginCycleState):
    """State of a plugin that concerns pods with volumes only."""

    def __init__(self, snapshot: CycleSnapshot) -> None:
        self._snapshot = snapshot

    def applies_to(self, pod_class: PodClass) -> bool:
        """Returns True for a class of pods with volumes."""
        return bool(pod_class.pod.spec.volumes)


class ClaimsCycleState(VolumeCycleState, ABC):
    """State of a plugin whose filter results no placement of the cycle changes: they are computed once for a class of pods."""

    def __init__(self, snapshot: CycleSnapshot) -> None:
        super().__init__(snapshot)
        self._results: dict[PodClass, Int64 | None] = {}  # in the order of their computation

    @abstractmethod
    def evaluate(self, pod_class: PodClass) -> Int64 | None:
        """The filter results of all nodes for a class of pods with claims, None when all pass."""

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a pod without claims."""
        if not claim_keys(pod_class):
            return None
        if pod_class not in self._results:
            self._results[pod_class] = self.evaluate(pod_class)
        results = self._results[pod_class]
        return None if results is None else results[rows]
