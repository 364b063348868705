"""Detection: a fold over rounds of samples, and the decision which pods begin or cease to be interfered with.

A pod is marked when the mean of a signal over `sustainSeconds` exceeds the limit of its baseline, and so do three
quarters of its samples, and the activity of a best-effort neighbour is correlated with that signal. The mark ends when
hardly a sample of any signal has done so for `recoverySeconds`, or the pod is gone. Time and policy come in as
arguments.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from services.node_agent.interference.baseline import Baseline, Baselines, WorkloadOnNodeType
from services.node_agent.interference.policy import Policy
from services.node_agent.interference.signals import SIGNALS
from services.node_agent.interference.suspects import PodSample, Suspect, suspects
from shared.kube.instants import SECOND

MAX_ROUNDS = 60
"""Rounds that are kept for correlations."""
DEVIATING_SHARE, QUIET_SHARE = 0.75, 0.25
"""Share of samples above the limit from which on a signal may deviate, and up to which it is quiet."""
LEAST_SAMPLES = 3
"""Samples of a signal without which it does not deviate."""
MAX_MARKED = 64
"""Pods of a node that are marked at the same time at most."""


class Round(NamedTuple):
    """The samples of all pods of a node at one instant.

    Attributes:
        now_ns: nanoseconds since the epoch. elapsed_s: since the round before.
    """

    now_ns: int
    elapsed_s: float
    node_type: str
    pods: tuple[PodSample, ...]


class Deviation(NamedTuple):
    """A signal that deviates: the mean of its samples above the limit, the baseline's mean, and the limit."""

    signal: str
    value: float
    baseline: float
    limit: float


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """A pod that is interfered with, since an instant in nanoseconds since the epoch; and when it last deviated."""

    pod: str
    since_ns: int
    deviated_ns: int


class Started(NamedTuple):
    """A pod is interfered with from here on; `since_ns`: the first sample that deviated."""

    uid: str
    pod: str
    now_ns: int
    since_ns: int
    deviations: tuple[Deviation, ...]
    suspects: tuple[Suspect, ...]


class Ended(NamedTuple):
    """A pod is no longer interfered with: `recovered`, `gone`, or `disabled`."""

    uid: str
    pod: str
    reason: str


Change = Started | Ended


class _Evaluated(NamedTuple):
    """A sample of a signal against its baseline, when the baseline had learned enough."""

    at_ns: int
    value: float
    baseline: Baseline


class Stored(msgspec.Struct):
    """The part of the State that is kept over a restart of the agent: baselines, and uid -> mark."""

    baselines: Baselines = msgspec.field(default_factory=Baselines)
    marks: dict[str, Mark] = msgspec.field(default_factory=dict)


class DetectionState:
    """A fold over rounds and changes.

    Attributes:
        stored: baselines and marks.
        rounds: the newest rounds, uid -> sample.
    """

    def __init__(self, stored: Stored | None = None, now_ns: int = 0) -> None:
        """Begins with what is kept; a marked pod counts as deviating at this instant, since nobody has looked at it."""
        self.stored = stored or Stored()
        for uid, mark in self.stored.marks.items():
            self.stored.marks[uid] = Mark(mark.pod, mark.since_ns, now_ns)
        self.rounds: deque[Mapping[str, PodSample]] = deque(maxlen=MAX_ROUNDS)
        self._evaluated: dict[tuple[str, str], deque[_Evaluated]] = {}

    def fold(self, found: Round, policy: Policy) -> None:
        """Folds a round: evaluates each signal by its baseline so far, then learns from it."""
        here = {each.uid: each for each in found.pods}
        self.rounds.append(here)
        for key in [key for key in self._evaluated if key[0] not in here]:
            del self._evaluated[key]
        baselines, now_s = self.stored.baselines, found.now_ns // SECOND
        for pod in found.pods:
            if pod.best_effort:
                continue
            where = WorkloadOnNodeType(pod.workload, found.node_type)
            for signal, value in pod.signals.items():
                before = baselines.of(where, signal)
                limit = before.limit(policy.deviation_percent, policy.standard_deviations, SIGNALS[signal].floor)
                usable = before.learned_s >= policy.learn_s
                if usable:
                    self._evaluate(pod.uid, signal, _Evaluated(found.now_ns, value, before), policy)
                learn = before.outlived if usable and value > limit else before.learned
                after = learn(min(value, limit) if usable else value, found.elapsed_s, policy.half_life_s)
                baselines.learn(where, signal, after, now_s)
        for uid, mark in self.stored.marks.items():
            if self.deviations(uid, policy, found.now_ns, ends=True)[0]:
                self.stored.marks[uid] = Mark(mark.pod, mark.since_ns, found.now_ns)

    def _evaluate(self, uid: str, signal: str, sample: _Evaluated, policy: Policy) -> None:
        """Keeps the samples of the last `sustainSeconds`, and one that is older to show that they span them."""
        samples = self._evaluated.setdefault((uid, signal), deque())
        samples.append(sample)
        begin_ns = sample.at_ns - policy.sustain_ns
        while len(samples) > 2 and samples[1].at_ns <= begin_ns:
            samples.popleft()

    def apply(self, change: Change) -> None:
        """Folds a decision."""
        match change:
            case Started(uid=uid, pod=pod, since_ns=since_ns):
                self.stored.marks[uid] = Mark(pod, since_ns, change.now_ns)
            case Ended(uid=uid):
                self.stored.marks.pop(uid, None)

    def deviations(
        self, uid: str, policy: Policy, now_ns: int, *, ends: bool = False
    ) -> tuple[tuple[Deviation, ...], int]:
        """Returns the deviating signals of a pod over `sustainSeconds`, and the instant of their first sample above the
        limit.

        The limit is the baseline's for a mean of that number of samples. A single high sample makes no deviation: three
        quarters of the samples must be above the limit, too.

        Args:
            ends: for a pod that is marked: a smaller share of samples above the limit is enough, whatever the mean.
        """
        found, since_ns = [], now_ns
        for signal, (floor, _) in SIGNALS.items():
            samples = self._evaluated.get((uid, signal))
            if not samples or len(samples) < LEAST_SAMPLES or now_ns - samples[0].at_ns < policy.sustain_ns:
                continue
            if now_ns - samples[-1].at_ns >= policy.sustain_ns:
                continue  # the kernel has ceased to count it, or the pod is idle
            baseline = samples[-1].baseline
            limit = baseline.limit(policy.deviation_percent, policy.standard_deviations, floor, len(samples))
            above = [each for each in samples if each.value > limit]
            mean = sum(each.value for each in samples) / len(samples)
            share = QUIET_SHARE if ends else DEVIATING_SHARE
            if above and len(above) >= share * len(samples) and (ends or mean > limit):
                value = sum(each.value for each in above) / len(above)
                found.append(Deviation(signal, value, baseline.mean, limit))
                since_ns = min(since_ns, above[0].at_ns)
        return tuple(found), since_ns


def decide(state: DetectionState, policy: Policy, now_ns: int) -> tuple[Change, ...]:
    """Returns the pods that begin or cease to be interfered with after a round, ended ones first.

    Args:
        now_ns: of the newest round.
    """
    here = state.rounds[-1] if state.rounds else {}
    marks = state.stored.marks
    if not policy.enable:
        return tuple(Ended(uid, mark.pod, "disabled") for uid, mark in sorted(marks.items()))
    changes: list[Change] = []
    for uid, mark in sorted(marks.items()):
        if uid not in here:
            changes.append(Ended(uid, mark.pod, "gone"))
        elif now_ns - mark.deviated_ns >= policy.recovery_ns:
            changes.append(Ended(uid, mark.pod, "recovered"))
    rounds, free = list(state.rounds), MAX_MARKED - len(marks)
    for uid, pod in here.items():
        if pod.best_effort or uid in marks or free <= 0:
            continue
        deviations, since_ns = state.deviations(uid, policy, now_ns)
        if not deviations:
            continue
        found = suspects(uid, [each.signal for each in deviations], rounds, policy.min_correlation_percent)
        if found:
            free -= 1
            changes.append(Started(uid, pod.pod, now_ns, since_ns, deviations, found))
    return tuple(changes)
