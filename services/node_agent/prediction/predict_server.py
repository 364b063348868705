"""Trains usage histograms, keeps them in checkpoints, and predicts the peak usage of prod pods (koordlet's predict
server).

The histograms take one sample a minute of each pod, class and the node.
Source: spec/slo-controller.md 11.3, 11.4; spec/node-agent.md 3.12.
"""

import logging
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

from services.node_agent.collectors.usage_sample_types import MICRO, SECOND_NS, Usage, UsageSnapshot
from services.node_agent.prediction.histogram_checkpoint import HistogramCheckpoints
from services.node_agent.report_builder import Forecasts
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.agents.node_pods import NodePods
from shared.agents.report import Forecast
from shared.domain.cpu_memory import Amount
from shared.domain.priority import priority
from shared.kube.quantity import milli, value
from shared.prediction.peak_predictor import allocatable_of, predict
from shared.prediction.usage_models import Models, PodUsed, PredictionSettings, Used, known_here

log = logging.getLogger(__name__)

TRAIN_INTERVAL_NS = 60 * SECOND_NS


class _Minute:
    """Samples of one thing since the last training: micro-cores, bytes."""

    __slots__ = ("cpu", "memory")

    def __init__(self) -> None:
        self.cpu, self.memory = array("q"), array("q")

    def add(self, usage: Usage) -> None:
        if usage.cpu is not None:
            self.cpu.append(usage.cpu)
        if usage.memory is not None:
            self.memory.append(usage.memory)

    def used(self) -> Used:
        """Returns their p90, in cores and bytes."""
        cpu, memory = _p90(self.cpu), _p90(self.memory)
        return Used(None if cpu is None else cpu / MICRO, None if memory is None else float(memory))


class PredictServer:
    """Trains on the usage of each cycle, and predicts once a minute.

    Attributes:
        forecasts: the newest prediction; empty before the first training: reports then leave an earlier prediction in
            place.
    """

    def __init__(
        self, pods: NodePodsInformer, settings: PredictionSettings, state_dir: Path | None, wall_ns: Callable[[], int]
    ) -> None:
        self.forecasts = Forecasts()
        self._pods, self._settings, self._wall_ns = pods, settings, wall_ns
        self._models = Models(settings)
        self._checkpoints = None if state_dir is None else HistogramCheckpoints(state_dir)
        self._restored = False
        self._trained_ns = -1
        self._node = _Minute()
        self._minutes: dict[str, _Minute] = {}

    def run_cycle(self, snapshot: UsageSnapshot) -> None:
        """Adds the samples of a cycle; trains when a minute has passed.

        Raises:
            KoordError: a pod or the node has an invalid amount; the next minute starts afresh.
        """
        if snapshot.node is not None:
            self._node.add(snapshot.node)
        minutes = self._minutes
        for uid, (cpu, memory, _) in snapshot.pods.items():
            minute = minutes.get(uid)
            if minute is None:
                minute = minutes[uid] = _Minute()
            if cpu is not None:
                minute.cpu.append(cpu)
            if memory is not None:
                minute.memory.append(memory)
        if self._trained_ns < 0:
            self._trained_ns = snapshot.at_ns
        if snapshot.at_ns - self._trained_ns < TRAIN_INTERVAL_NS:
            return
        self._trained_ns = snapshot.at_ns
        try:
            if (node_pods := self._pods.in_force) is not None:
                self._train(node_pods, self._wall_ns())
        finally:
            self._node = _Minute()
            minutes.clear()

    def _train(self, node_pods: NodePods, now_ns: int) -> None:
        if not self._restored:
            self._restored = True
            self._restore(node_pods)
        minutes = self._minutes
        self._models.train(
            (
                PodUsed(uid, priority(pod).value, minutes[uid].used())
                for pod in node_pods.pods
                if (uid := pod.metadata.uid) in minutes
            ),
            self._node.used(),
            now_ns,
        )
        idle = self._models.forget_idle(now_ns)
        if self._checkpoints is not None:
            self._checkpoints.remove(idle)
            self._checkpoints.keep(self._models.due_checkpoints(now_ns))
        peaks = predict(
            node_pods.pods, allocatable_of(node_pods.object), self._models.by_key.get, self._settings, now_ns
        ).both
        self.forecasts = Forecasts(
            _forecast(peaks.reclaimable) or Forecast(),
            _forecast(peaks.peak),
        )

    def _restore(self, node_pods: NodePods) -> None:
        if self._checkpoints is None:
            return
        here = {pod.metadata.uid: None for pod in node_pods.pods}
        stored = self._checkpoints.read()
        useless = self._models.restore(stored, known_here(here, node=node_pods.object is not None))
        self._checkpoints.remove(useless)
        if stored:
            log.info("predictions are restored", extra={"models": len(stored) - len(useless)})


def _forecast(amount: Amount | None) -> Forecast | None:
    return None if amount is None else Forecast(milli(amount.cpu), value(amount.memory))


def _p90(samples: "array[int]") -> int | None:
    """Returns the 90th percentile: index trunc(float32(n) * float32(0.9)) - 1, at least 0.

    In single precision, as upstream computes it.
    """
    if not samples:
        return None
    (share,) = struct.unpack("f", struct.pack("f", 0.9))
    (place,) = struct.unpack("f", struct.pack("f", len(samples) * share))
    return sorted(samples)[max(int(place) - 1, 0)]
