"""Runs the domain `prediction`: the models of a node, and what prod pods request and will not need."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.slo_controller.histogram import histogram
from shared.domain.cpu_memory import Amount
from shared.domain.priority import priority
from shared.kube.instants import SECOND, instant_ns
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import milli, value
from shared.prediction.peak_predictor import ClassPeaks, NoPrediction, Outcome, PodPeaks, allocatable_of, predict
from shared.prediction.usage_models import Model, Models, PodUsed, PredictionSettings, Used, known_here


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs one case."""
    match op:
        case "histogram":
            return histogram(given)
        case "predict_server":
            return server(given)
    return reclaimable(given)


def server(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `predict_server`: training passes, restarts and queries."""
    settings = _settings(given["config"])
    pods = {pod["metadata"]["uid"]: msgspec.convert(pod, Pod) for pod in given["pods"]}
    models, results = Models(settings), []
    for number, tick in enumerate(given["ticks"]):
        now_ns = instant_ns(tick["now"])
        used = tick.get("podUsage") or {}
        for step in tick["do"]:
            match step:
                case "train":
                    node = tick.get("nodeUsage") or {}
                    models.train(
                        [PodUsed(uid, priority(pods[uid]).value, _used(used.get(uid) or {})) for uid in tick["pods"]],
                        _used(node),
                        now_ns,
                    )
                case "gc":
                    models.forget_idle(now_ns)
                case "restart":
                    stored = models.checkpoints(now_ns)
                    models = Models(settings)
                    here = dict.fromkeys(tick["pods"])
                    models.restore(stored, known_here(here, node="node" in given))
                case "query":
                    keys = sorted(models.by_key)
                    found = {key: models.predictions(key) for key in keys}
                    shown = {
                        key: {name: {"cpuMilli": p.cpu_milli, "memoryBytes": p.memory} for name, p in each.items()}
                        for key, each in found.items()
                        if each is not None
                    }
                    results.append({"tick": number, "synced": models.synced, "models": shown})
    return {"results": results}


def reclaimable(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `reclaimable`: both predictors on one node."""
    settings, now_ns = _settings(given["config"]), instant_ns(given["now"])
    models: dict[str, Model] = {}
    for uid, samples in given["models"].items():
        model = models[uid] = Model(settings)
        for sample in samples:
            at_ns = instant_ns(sample["time"])
            model.cpu.add(sample["cpu"], 1.0, at_ns)
            model.memory.add(sample["memory"], 1.0, at_ns)
    allocatable = allocatable_of(msgspec.convert(given["node"], Node) if "node" in given else None)
    pods = [msgspec.convert(pod, Pod) for pod in given["pods"]]
    by_pod, failed = PodPeaks(models.get, settings, now_ns), []
    by_class = ClassPeaks(models.get, settings)
    for pod in pods:
        by_class.add(pod)
        try:
            by_pod.add(pod)
            failed.append(False)
        except NoPrediction:
            failed.append(True)
    both = predict(pods, allocatable, models.get, settings, now_ns)
    predicted = {uid: model.predict(0.95, 0.98) for uid, model in models.items()}
    return {
        "pod": _outcome(by_pod.outcome(allocatable), failed),
        "priority": _outcome(by_class.outcome(allocatable), [False] * len(pods)),
        "min": _outcome(both.both, list(both.failed)),
        "predictions": {uid: {"p95CpuMilli": p.cpu_milli, "p98MemoryBytes": p.memory} for uid, p in predicted.items()},
    }


def _outcome(outcome: Outcome, failed: list[bool]) -> dict[str, Any]:
    return {"addErrors": failed, "result": _amount(outcome.reclaimable), "peak": _amount(outcome.peak)}


def _amount(amount: Amount | None) -> dict[str, int] | None:
    return None if amount is None else {"cpuMilli": milli(amount.cpu), "memoryBytes": value(amount.memory)}


def _settings(config: Mapping[str, Any]) -> PredictionSettings:
    return PredictionSettings(
        cold_start_ns=config["coldStartSeconds"] * SECOND,
        safety_margin_percent=config["safetyMarginPercent"],
        cpu_half_life_ns=config["cpuHalfLifeSeconds"] * SECOND,
        memory_half_life_ns=config["memoryHalfLifeSeconds"] * SECOND,
        expiration_ns=config["modelExpirationSeconds"] * SECOND,
    )


def _used(recorded: Mapping[str, float]) -> Used:
    return Used(recorded.get("cpu"), recorded.get("memory"))
