"""Usage models: a pair of histograms for each pod, each class and the node; trained, expired when idle, and stored.

Source: spec/slo-controller.md 11.1, 11.3; upstream pkg/koordlet/prediction/predict_server.go.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from shared.kube.instants import SECOND
from shared.prediction.histogram import CPU, MEMORY, BadCheckpoint, Checkpoint, Histogram

NODE = "__node__"
CLASSES = ("koord-prod", "koord-mid", "koord-batch", "koord-free", "")
SYSTEM = "sys"
SHARES = {"p60": 0.6, "p90": 0.9, "p95": 0.95, "p98": 0.98, "max": 1.0}


def item_key(item: str) -> str:
    """Returns the key of a class's model, or of the processes outside of pods."""
    return f"__node-{item}__"


ITEMS = tuple(item_key(item) for item in (*CLASSES, SYSTEM))


class PredictionSettings(NamedTuple):
    """Parameters of models. Source: spec/slo-controller.md 11.1."""

    cold_start_ns: int = 24 * 3600 * SECOND
    safety_margin_percent: int = 10
    cpu_half_life_ns: int = 12 * 3600 * SECOND
    memory_half_life_ns: int = 24 * 3600 * SECOND
    expiration_ns: int = 1800 * SECOND
    checkpoint_interval_ns: int = 600 * SECOND
    checkpoints_a_step: int = 12


class Used(NamedTuple):
    """Usage over the last interval: cores and bytes; None where it could not be measured."""

    cpu: float | None = None
    memory: float | None = None


class PodUsed(NamedTuple):
    """One pod's usage and its class."""

    uid: str
    priority: str
    used: Used


class Predicted(NamedTuple):
    """A percentile of the predicted usage: milli-cores and bytes, truncated."""

    cpu_milli: int
    memory: int


class ModelCheckpoint(NamedTuple):
    """The stored form of a model."""

    uid: str
    cpu: Checkpoint
    memory: Checkpoint
    updated_ns: int


class Model:
    """Histograms of cpu and memory.

    Attributes:
        trained_ns: the last sample.
        stored_ns: the last checkpoint; 0: none.
    """

    __slots__ = ("cpu", "memory", "stored_ns", "trained_ns")

    def __init__(self, settings: PredictionSettings) -> None:
        self.cpu = Histogram(CPU, settings.cpu_half_life_ns)
        self.memory = Histogram(MEMORY, settings.memory_half_life_ns)
        self.trained_ns = 0
        self.stored_ns = 0

    def predict(self, share: float, memory_share: float | None = None) -> Predicted:
        """Returns a percentile; `memory` may have another one."""
        memory = self.memory.percentile(share if memory_share is None else memory_share)
        return Predicted(math.trunc(self.cpu.percentile(share) * 1000), math.trunc(memory))


class Models:
    """The models of one node.

    Attributes:
        synced: a whole pass was trained since the start.
    """

    def __init__(self, settings: PredictionSettings) -> None:
        self.settings = settings
        self.by_key: dict[str, Model] = {}
        self.synced = False

    def train(self, pods: Iterable[PodUsed], node: Used, now_ns: int) -> None:
        """Adds one sample to each model: pods, the node, each class as the sum of its pods, and the usage outside of pods."""
        classes = {name: [0.0, 0.0] for name in CLASSES}
        total, some = [0.0, 0.0], [False, False]
        for pod in pods:
            cpu, memory = pod.used
            if cpu is None or memory is None:  # a pod without measured usage has no sample in this pass
                continue
            self._sample(pod.uid, cpu, memory, now_ns)
            sums = classes.get(pod.priority, classes[""])
            for index, size in enumerate((cpu, memory)):
                sums[index] += size
                total[index] += size
                some[index] = True
        whole = (node.cpu or 0.0, node.memory or 0.0)
        if node.cpu is not None and node.memory is not None:
            self._sample(NODE, *whole, now_ns)
        for name, sums in classes.items():
            self._sample(item_key(name), sums[0], sums[1], now_ns)
        self._sample(item_key(SYSTEM), max(whole[0] - total[0], 0.0), max(whole[1] - total[1], 0.0), now_ns)
        self.synced = True

    def forget_idle(self, now_ns: int) -> list[str]:
        """Drops models without a sample within the expiration. Returns their keys."""
        idle = [key for key, model in self.by_key.items() if now_ns - model.trained_ns > self.settings.expiration_ns]
        for key in idle:
            del self.by_key[key]
        return idle

    def predictions(self, key: str) -> dict[str, Predicted] | None:
        """Returns all percentiles of a model; None without the model."""
        model = self.by_key.get(key)
        if model is None:
            return None
        return {name: model.predict(share) for name, share in SHARES.items()}

    def due_checkpoints(self, now_ns: int) -> list[ModelCheckpoint]:
        """Returns the models to be stored now: those stored longest ago first, a few at a time."""
        due = sorted(
            (model.stored_ns, key)
            for key, model in self.by_key.items()
            if now_ns - model.stored_ns >= self.settings.checkpoint_interval_ns
        )
        return [self._checkpoint(key, now_ns) for _, key in due[: self.settings.checkpoints_a_step]]

    def checkpoints(self, now_ns: int) -> list[ModelCheckpoint]:
        """Returns all models, to be stored now."""
        return [self._checkpoint(key, now_ns) for key in sorted(self.by_key)]

    def restore(self, stored: Iterable[ModelCheckpoint], known: Callable[[str], bool]) -> list[str]:
        """Restores the stored models that are still needed. Returns the keys of the others, which can be deleted.

        A restored model's age counts from its checkpoint, in whole seconds.
        """
        useless = []
        for checkpoint in stored:
            model = Model(self.settings)
            try:
                model.cpu.load(checkpoint.cpu)
                model.memory.load(checkpoint.memory)
            except BadCheckpoint:
                useless.append(checkpoint.uid)
                continue
            if not known(checkpoint.uid):
                useless.append(checkpoint.uid)
                continue
            model.trained_ns = model.stored_ns = checkpoint.updated_ns // SECOND * SECOND
            self.by_key[checkpoint.uid] = model
        return useless

    def _sample(self, key: str, cpu: float, memory: float, now_ns: int) -> None:
        model = self.by_key.get(key)
        if model is None:
            model = self.by_key[key] = Model(self.settings)
        model.trained_ns = now_ns
        model.cpu.add(cpu, 1.0, now_ns)
        model.memory.add(memory, 1.0, now_ns)

    def _checkpoint(self, key: str, now_ns: int) -> ModelCheckpoint:
        model = self.by_key[key]
        model.stored_ns = now_ns
        return ModelCheckpoint(key, model.cpu.save(), model.memory.save(), now_ns)


def known_here(pods: Mapping[str, object], *, node: bool) -> Callable[[str], bool]:
    """Selects the stored models to restore: of existing pods, of classes, and of the node when it is known."""
    return lambda key: key in pods or key in ITEMS or (node and key == NODE)
