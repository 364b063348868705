"""Histograms whose samples count half after each half-life.

Source: spec/slo-controller.md 11.2; upstream pkg/util/histogram.
"""

import math
from typing import NamedTuple

from shared.errors import KoordError
from shared.kube.instants import SECOND
from shared.prediction.portable_math import exp2, power

ZERO_TIME_NS = -62_135_596_800 * SECOND
"""The year 1: origin of the multiples of a half-life, and reference of a new histogram."""

LARGEST_EXPONENT = 100
"""The reference is shifted when a sample is more than this many half-lives after it."""

MAX_CHECKPOINT_WEIGHT = 10_000
_LONGEST_NS = 2**63


def _log(value: float, base: float) -> float:
    return math.log(value) / math.log(base)


class BadCheckpoint(KoordError):
    """A checkpoint that does not fit its histogram."""


class Buckets(NamedTuple):
    """The bounds of buckets.

    Attributes:
        number: of buckets.
        first: end of the first bucket.
        ratio: width of each bucket relative to the previous one; 1: all have the same width.
        epsilon: a weight below this counts as 0.
    """

    number: int
    first: float
    ratio: float
    epsilon: float

    @classmethod
    def exponential(cls, largest: float, first: float, ratio: float, epsilon: float) -> "Buckets":
        """Returns buckets that grow by a ratio, up to one that contains `largest`."""
        return cls(math.ceil(_log(largest * (ratio - 1) / first + 1, ratio)) + 1, first, ratio, epsilon)

    @classmethod
    def linear(cls, largest: float, size: float, epsilon: float) -> "Buckets":
        """Returns buckets of one size."""
        return cls(math.ceil(largest / size) + 1, size, 1.0, epsilon)

    def find(self, value: float) -> int:
        """Returns the bucket of a value; the last one beyond the largest."""
        if self.ratio == 1.0:
            return max(0, min(int(value / self.first), self.number - 1))
        if value < self.first:
            return 0
        return min(int(_log(value * (self.ratio - 1) / self.first + 1, self.ratio)), self.number - 1)

    def start(self, bucket: int) -> float:
        """Returns the start of a bucket."""
        if bucket == 0:
            return 0.0
        if self.ratio == 1.0:
            return bucket * self.first
        return self.first * (power(self.ratio, bucket) - 1) / (self.ratio - 1)


CPU = Buckets.exponential(1024.0, 0.025, 1.05, 0.0001)
"""Cores."""
MEMORY = Buckets.exponential(float(2**41), float(5 << 20), 1.05, 0.0001)
"""Bytes."""


class Checkpoint(NamedTuple):
    """The stored form of a histogram: weights relative to the largest."""

    weights: dict[int, int]
    total: float
    reference_ns: int = ZERO_TIME_NS


class Histogram:
    """Weights of samples by bucket.

    Attributes:
        weights: of each bucket, as of `reference_ns`.
        low, high: buckets outside of this range have less than epsilon.
        half_life_ns: 0: samples count the same for ever.
    """

    __slots__ = ("buckets", "half_life_ns", "high", "low", "reference_ns", "total", "weights")

    def __init__(self, buckets: Buckets, half_life_ns: int = 0) -> None:
        self.buckets = buckets
        self.half_life_ns = half_life_ns
        self.weights = [0.0] * buckets.number
        self.total = 0.0
        self.low, self.high = buckets.number - 1, 0
        self.reference_ns = ZERO_TIME_NS

    @property
    def is_empty(self) -> bool:
        """Reports whether all weights are below epsilon."""
        return self.weights[self.low] < self.buckets.epsilon

    def add(self, value: float, weight: float, at_ns: int) -> None:
        """Adds a sample."""
        if weight < 0:
            raise ValueError(f"a sample's weight is {weight}; give at least 0")
        bucket = self.buckets.find(value)
        weight *= self._factor(at_ns)
        self.weights[bucket] += weight
        self.total += weight
        if self.weights[bucket] >= self.buckets.epsilon:
            self.low, self.high = min(self.low, bucket), max(self.high, bucket)

    def percentile(self, share: float) -> float:
        """Returns the end of the first bucket up to which at least this share of the weight lies; 0 when it is empty."""
        if self.is_empty:
            return 0.0
        threshold, so_far = share * self.total, 0.0
        bucket = self.low
        while bucket < self.high:
            so_far += self.weights[bucket]
            if so_far >= threshold:
                break
            bucket += 1
        return self.buckets.start(min(bucket + 1, self.buckets.number - 1))

    def save(self) -> Checkpoint:
        """Returns the stored form: weights relative to the largest, without those that round to 0."""
        used = range(self.low, self.high + 1)
        largest = max((self.weights[bucket] for bucket in used), default=0.0)
        ratio = MAX_CHECKPOINT_WEIGHT / largest if largest else 0.0
        relative = {bucket: math.floor(self.weights[bucket] * ratio + 0.5) for bucket in used}
        return Checkpoint({b: weight for b, weight in relative.items() if weight}, self.total, self.reference_ns)

    def load(self, checkpoint: Checkpoint) -> None:
        """Adds a stored histogram. The range widens to every bucket in it, regardless of its weight.

        Raises:
            BadCheckpoint: a bucket that does not exist, or a negative weight.
        """
        if checkpoint.total < 0:
            raise BadCheckpoint(f"a checkpoint's total weight is {checkpoint.total}; remove it")
        for bucket in checkpoint.weights:
            if not 0 <= bucket < self.buckets.number:
                raise BadCheckpoint(f"a checkpoint names bucket {bucket} of {self.buckets.number}; remove it")
        total = sum(checkpoint.weights.values())
        if total:
            ratio = checkpoint.total / total
            for bucket, weight in checkpoint.weights.items():
                self.low, self.high = min(self.low, bucket), max(self.high, bucket)
                self.weights[bucket] += weight * ratio
            self.total += checkpoint.total
        if self.half_life_ns:
            self.reference_ns = checkpoint.reference_ns

    def _factor(self, at_ns: int) -> float:
        if not self.half_life_ns:
            return 1.0
        if at_ns > self.reference_ns + LARGEST_EXPONENT * self.half_life_ns:
            self.shift(at_ns)
        return exp2(float(_bounded(at_ns - self.reference_ns)) / float(self.half_life_ns))

    def shift(self, at_ns: int) -> None:
        """Shifts the reference to the multiple of the half-life nearest to an instant."""
        half_life = self.half_life_ns
        since = at_ns - ZERO_TIME_NS
        multiple, rest = divmod(since, half_life)
        reference = ZERO_TIME_NS + (multiple + (2 * rest >= half_life)) * half_life
        exponent = _round(float(_bounded(self.reference_ns - reference)) / float(half_life))
        factor = math.ldexp(1.0, max(exponent, -10_000))
        for bucket in range(self.low, self.high + 1):
            self.weights[bucket] *= factor
        self.total *= factor
        self._narrow()
        self.reference_ns = reference

    def _narrow(self) -> None:
        epsilon, last = self.buckets.epsilon, self.buckets.number - 1
        while self.weights[self.low] < epsilon and self.low < last:
            self.low += 1
        while self.weights[self.high] < epsilon and self.high > 0:
            self.high -= 1


def _round(value: float) -> int:
    """Rounds to the nearest whole number, halves away from 0."""
    return math.trunc(value + math.copysign(0.5, value))


def _bounded(ns: int) -> int:
    """Limits a span to Go's range: 292 years either way."""
    return max(-_LONGEST_NS, min(ns, _LONGEST_NS - 1))
