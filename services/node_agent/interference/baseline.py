"""Baselines: the usual value of each signal, by workload and node type, learned from samples that fade with time."""

from math import sqrt
from typing import NamedTuple

import msgspec

MAX_WORKLOADS = 512
"""Workloads whose baselines are kept; the longest unseen are forgotten first."""
LN2 = 0.6931471805599453


class Baseline(msgspec.Struct, frozen=True, array_like=True):
    """The usual value of one signal.

    Attributes:
        learned_s: seconds of samples that it was learned from.
        mean, variance: exponentially weighted; in the signal's unit, and its square.
    """

    learned_s: float = 0.0
    mean: float = 0.0
    variance: float = 0.0

    def limit(self, deviation_percent: int, standard_deviations: int, floor: float, samples: int = 1) -> float:
        """Returns the value above which a sample deviates, or the mean of several: the highest of three.

        max(mean * (1 + deviation_percent / 100), mean + standard_deviations * sqrt(variance / samples), floor)
        """
        by_spread = self.mean + standard_deviations * sqrt(self.variance / samples)
        return max(self.mean * (100 + deviation_percent) / 100, by_spread, floor)

    def learned(self, value: float, seconds: float, half_life_s: float) -> "Baseline":
        """Returns the baseline with one more usual sample.

        Its weight is its share of all seconds so far, and at least what lets a sample lose half of its weight in
        `half_life_s`: max(seconds / learned_s, seconds / (seconds + half_life_s / ln 2)).
        """
        learned_s = self.learned_s + seconds
        return self._moved(value, max(seconds / learned_s, _fading(seconds, half_life_s)), learned_s)

    def outlived(self, limit: float, seconds: float, half_life_s: float) -> "Baseline":
        """Returns the baseline after a sample above the limit: it is learned as the limit, by the half-life alone.

        So an outlier, or a neighbour, moves a baseline little, and a change that stays is learned in the end.
        """
        return self._moved(limit, _fading(seconds, half_life_s), self.learned_s)

    def _moved(self, value: float, weight: float, learned_s: float) -> "Baseline":
        step = value - self.mean
        return Baseline(learned_s, self.mean + weight * step, (1 - weight) * (self.variance + weight * step * step))


def _fading(seconds: float, half_life_s: float) -> float:
    return seconds / (seconds + half_life_s / LN2)


class WorkloadBaselines(msgspec.Struct, array_like=True):
    """The baselines of one workload on one node type.

    Attributes:
        seen_s: when it was last sampled, seconds since the epoch.
        signals: signal -> baseline.
    """

    seen_s: int = 0
    signals: dict[str, Baseline] = msgspec.field(default_factory=dict)


class WorkloadOnNodeType(NamedTuple):
    """The owner of a baseline: `namespace/Kind/name` of the pod's controller, and the type of the node."""

    workload: str
    node_type: str

    @property
    def key(self) -> str:
        """The key in a stored file."""
        return f"{self.workload}@{self.node_type}"


class Baselines(msgspec.Struct):
    """The baselines of a node: a fold over samples, bounded in size.

    Attributes:
        workloads: WorkloadOnNodeType.key -> baselines.
    """

    workloads: dict[str, WorkloadBaselines] = msgspec.field(default_factory=dict)

    def of(self, where: WorkloadOnNodeType, signal: str) -> Baseline:
        """Returns a baseline; one that has learned nothing where there is none."""
        found = self.workloads.get(where.key)
        return Baseline() if found is None else found.signals.get(signal, Baseline())

    def learn(self, where: WorkloadOnNodeType, signal: str, baseline: Baseline, now_s: int) -> None:
        """Replaces a baseline, and forgets the workload unseen for longest where there are too many."""
        if where.key not in self.workloads and len(self.workloads) >= MAX_WORKLOADS:
            oldest = min(self.workloads, key=lambda key: (self.workloads[key].seen_s, key))
            del self.workloads[oldest]
        found = self.workloads.setdefault(where.key, WorkloadBaselines())
        found.seen_s = now_s
        found.signals[signal] = baseline
