"""What the trials of the volume plugins have in common: none scores, and those of claims judge a class of pods once in a cycle."""

from abc import ABC, abstractmethod

import numpy as np

from services.scheduler.cycle.cycle_snapshot import Room
from services.scheduler.kernels.tiles import Int64, Rows
from services.scheduler.plugins.helper.volume_claims import claim_keys
from services.scheduler.state.pod_class import PodAsk


class VolumePluginState(ABC):
    """A state that filters and scores nothing."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def applies_to(self, ask: PodAsk) -> bool:
        """Whether the pod has volumes."""
        return bool(ask.pod.spec.volumes)

    @abstractmethod
    def filter(self, ask: PodAsk, rows: Rows) -> Int64 | None:
        """The verdicts on these nodes, None when all pass."""

    def filter_at(self, ask: PodAsk, row: int) -> int:
        """The verdict on one node."""
        verdicts = self.filter(ask, np.array([row]))
        return 0 if verdicts is None else int(verdicts[0])

    def score(self, ask: PodAsk, rows: Rows) -> None:  # noqa: B027 (nothing is what it does)
        """It scores nothing."""

    def score_at(self, ask: PodAsk, row: int) -> int:  # noqa: ARG002
        """It scores nothing."""
        return 0


class ClaimsPluginState(VolumePluginState):
    """A state whose verdicts no placement of the cycle changes: they are worked out once for a class of pods."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._verdicts: dict[PodAsk, Int64 | None] = {}

    @abstractmethod
    def judge(self, ask: PodAsk) -> Int64 | None:
        """The verdicts on all nodes for a class of pods with claims, None when all pass."""

    def filter(self, ask: PodAsk, rows: Rows) -> Int64 | None:
        """None for a pod without claims."""
        if not claim_keys(ask):
            return None
        if ask not in self._verdicts:
            self._verdicts[ask] = self.judge(ask)
        verdicts = self._verdicts[ask]
        return None if verdicts is None else verdicts[rows]
