"""Runs op `histogram` of the domain `prediction`."""

from collections.abc import Mapping
from typing import Any, Self

from shared.kube.instants import SECOND, instant_ns, instant_text
from shared.prediction.histogram import ZERO_TIME_NS, BadCheckpoint, Buckets, Checkpoint, Histogram


class Reversible(Histogram):
    """A histogram with the two operations that upstream's has and nothing here needs, for cases that mix them with the
    others.
    """

    __slots__ = ()

    def subtract(self, value: float, weight: float, at_ns: int) -> None:
        """Takes a sample back; less than epsilon becomes 0."""
        bucket = self.buckets.find(value)
        weight *= self._factor(at_ns)
        self.total = self._less(self.total, weight)
        self.weights[bucket] = self._less(self.weights[bucket], weight)
        self._narrow()

    def merge(self, other: Self) -> None:
        """Adds another one of the same buckets and half-life; the older reference moves up to the younger."""
        if self.half_life_ns:
            if self.reference_ns < other.reference_ns:
                self.shift(other.reference_ns)
            elif other.reference_ns < self.reference_ns:
                other.shift(self.reference_ns)
        for bucket in range(other.low, other.high + 1):
            self.weights[bucket] += other.weights[bucket]
        self.total += other.total
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def _less(self, size: float, weight: float) -> float:
        rest = size - weight
        return 0.0 if rest < self.buckets.epsilon else rest


def histogram(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `histogram`: steps on one histogram."""
    options, half_life_ns = given["options"], int(given.get("halfLifeSeconds", 0) * SECOND)
    if options["type"] == "linear":
        buckets = Buckets.linear(options["maxValue"], options["bucketSize"], options["epsilon"])
    else:
        names = ("maxValue", "firstBucketSize", "ratio", "epsilon")
        buckets = Buckets.exponential(*(options[name] for name in names))
    current, results = Reversible(buckets, half_life_ns), []
    for index, step in enumerate(given["steps"]):
        answer: dict[str, Any] = {"step": index}
        match step["do"]:
            case "add":
                current.add(step["value"], step["weight"], instant_ns(step["time"]))
                continue
            case "subtract":
                current.subtract(step["value"], step["weight"], instant_ns(step["time"]))
                continue
            case "merge":
                other = Reversible(buckets, half_life_ns)
                for sample in step["samples"]:
                    other.add(sample["value"], sample["weight"], instant_ns(sample["time"]))
                current.merge(other)
                continue
            case "query":
                values = [current.percentile(share) for share in step["percentiles"]]
                answer |= {"empty": current.is_empty, "values": values, "truncMilli": [int(v * 1000) for v in values]}
            case "checkpoint":
                answer["checkpoint"] = _checkpoint(current)
            case "load":
                answer["loadError"] = _load(current, _read(step["checkpoint"]))
            case "reload":
                answer["checkpoint"] = _checkpoint(current)
                saved, current = current.save(), Reversible(buckets, half_life_ns)
                answer["loadError"] = _load(current, saved)
        results.append(answer)
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


def _checkpoint(of: Histogram) -> dict[str, Any]:
    saved = of.save()
    answer: dict[str, Any] = {
        "bucketWeights": {str(bucket): weight for bucket, weight in saved.weights.items()},
        "totalWeight": saved.total,
    }
    return answer | ({"referenceTimestamp": _instant(saved.reference_ns)} if of.half_life_ns else {})


def _read(recorded: Mapping[str, Any]) -> Checkpoint:
    text = recorded.get("referenceTimestamp")
    return Checkpoint(
        {int(bucket): weight for bucket, weight in (recorded.get("bucketWeights") or {}).items()},
        recorded.get("totalWeight", 0.0),
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
