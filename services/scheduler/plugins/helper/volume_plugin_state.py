"""What the trials of the volume plugins have in common: none scores, and those of claims judge a class of pods once in a cycle."""

from abc import ABC, abstractmethod

import numpy as np

from services.scheduler.cache.cycle_snapshot import CycleSnapshot
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.plugins.helper.volume_claims import claim_keys
from services.scheduler.state.pod_class import PodClass


class VolumePluginState(ABC):
    """A state that filters and scores nothing."""

    def __init__(self, snapshot: CycleSnapshot) -> None:
        self._snapshot = snapshot

    def applies_to(self, pod_class: PodClass) -> bool:
        """Whether the pod has volumes."""
        return bool(pod_class.pod.spec.volumes)

    @abstractmethod
    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """The verdicts on these nodes, None when all pass."""

    def filter_at(self, pod_class: PodClass, row: int) -> int:
        """The verdict on one node."""
        results = self.filter(pod_class, np.array([row]))
        return 0 if results is None else int(results[0])

    def score(self, pod_class: PodClass, rows: Rows) -> None:  # noqa: B027 (nothing is what it does)
        """It scores nothing."""

    def score_at(self, pod_class: PodClass, row: int) -> int:  # noqa: ARG002
        """It scores nothing."""
        return 0


class ClaimsPluginState(VolumePluginState):
    """A state whose verdicts no placement of the cycle changes: they are worked out once for a class of pods."""

    def __init__(self, snapshot: CycleSnapshot) -> None:
        super().__init__(snapshot)
        self._results: dict[PodClass, Int64 | None] = {}

    @abstractmethod
    def evaluate(self, pod_class: PodClass) -> Int64 | None:
        """The verdicts on all nodes for a class of pods with claims, None when all pass."""

    def filter(self, pod_class: PodClass, rows: Rows) -> Int64 | None:
        """None for a pod without claims."""
        if not claim_keys(pod_class):
            return None
        if pod_class not in self._results:
            self._results[pod_class] = self.evaluate(pod_class)
        results = self._results[pod_class]
        return None if results is None else results[rows]
