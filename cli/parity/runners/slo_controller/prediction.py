"""The `prediction` vectors: histograms, the models of a node, and what prod pods will not need."""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.domain.cpu_memory import Amount
from shared.domain.priority import priority
from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import milli, value
from shared.prediction.histogram import ZERO_TIME_NS, BadCheckpoint, Buckets, Checkpoint, Histogram
from shared.prediction.models import Model, Models, PodUsed, PredictionSettings, Used, known_here
from shared.prediction.peaks import ClassPeaks, NoPrediction, Outcome, PodPeaks, allocatable_of, predict


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    match op:
        case "histogram":
            return histogram(given)
        case "predict_server":
            return server(given)
    return reclaimable(given)


def histogram(given: Mapping[str, Any]) -> dict[str, Any]:
    """Steps on one histogram."""
    options, half_life_ns = given["options"], int(given.get("halfLifeSeconds", 0) * SECOND)
    if options["type"] == "linear":
        buckets = Buckets.linear(options["maxValue"], options["bucketSize"], options["epsilon"])
    else:
        names = ("maxValue", "firstBucketSize", "ratio", "epsilon")
        buckets = Buckets.exponential(*(options[name] for name in names))
    current, results = Histogram(buckets, half_life_ns), []
    for index, step in enumerate(given["steps"]):
        said: dict[str, Any] = {"step": index}
        match step["do"]:
            case "add":
                current.add(step["value"], step["weight"], instant_ns(step["time"]))
                continue
            case "subtract":
                current.subtract(step["value"], step["weight"], instant_ns(step["time"]))
                continue
            case "merge":
                other = Histogram(buckets, half_life_ns)
                for sample in step["samples"]:
                    other.add(sample["value"], sample["weight"], instant_ns(sample["time"]))
                current.merge(other)
                continue
            case "query":
                values = [current.percentile(share) for share in step["percentiles"]]
                said |= {"empty": current.is_empty, "values": values, "truncMilli": [int(v * 1000) for v in values]}
            case "checkpoint":
                said["checkpoint"] = _checkpoint(current)
            case "load":
                said["loadError"] = _load(current, _read(step["checkpoint"]))
            case "reload":
                said["checkpoint"] = _checkpoint(current)
                saved, current = current.save(), Histogram(buckets, half_life_ns)
                said["loadError"] = _load(current, saved)
        results.append(said)
    final = {
        "weights": {str(index): weight for index, weight in enumerate(current.weights) if weight},
        "totalWeight": current.total,
        "minBucket": current.low,
        "maxBucket": current.high,
        "empty": current.is_empty,
    }
    if half_life_ns:
        final["referenceTimestamp"] = _instant(current.reference_ns)
    return {"numBuckets": buckets.number, "results": results, "final": final}


def server(given: Mapping[str, Any]) -> dict[str, Any]:
    """Training passes, restarts and questions."""
    settings = _settings(given["config"])
    pods = {pod["metadata"]["uid"]: msgspec.convert(pod, Pod) for pod in given["pods"]}
    models, results = Models(settings), []
    for number, tick in enumerate(given["ticks"]):
        now_ns = instant_ns(tick["now"])
        used = tick.get("podUsage") or {}
        for deed in tick["do"]:
            match deed:
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
    """The predictors' answers for one node."""
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


def _used(stated: Mapping[str, float]) -> Used:
    return Used(stated.get("cpu"), stated.get("memory"))


def _checkpoint(of: Histogram) -> dict[str, Any]:
    saved = of.save()
    said: dict[str, Any] = {
        "bucketWeights": {str(bucket): weight for bucket, weight in saved.weights.items()},
        "totalWeight": saved.total,
    }
    return said | ({"referenceTimestamp": _instant(saved.reference_ns)} if of.half_life_ns else {})


def _read(stated: Mapping[str, Any]) -> Checkpoint:
    text = stated.get("referenceTimestamp")
    return Checkpoint(
        {int(bucket): weight for bucket, weight in (stated.get("bucketWeights") or {}).items()},
        stated.get("totalWeight", 0.0),
        instant_ns(text) if text else ZERO_TIME_NS,
    )


def _load(into: Histogram, checkpoint: Checkpoint) -> bool:
    try:
        into.load(checkpoint)
    except BadCheckpoint:
        return True
    return False


def _instant(ns: int) -> str:
    return "0001-01-01T00:00:00Z" if ns == ZERO_TIME_NS else instant_text(ns)
