"""What prod pods will not need of what they asked for, by two predictors and the smaller of both.

Source: spec/slo-controller.md 11.4; upstream pkg/koordlet/prediction/peak_predictor.go.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from shared.domain.cpu_memory import MILLI, ZERO, Amount, scaled
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority
from shared.errors import KoordError
from shared.kube.instants import BadTime, instant_ns
from shared.kube.json_text import read_json
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.prediction.usage_models import SYSTEM, Model, PredictionSettings, item_key

RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"

_PROD = (Priority.PROD.value, Priority.NONE.value)
_ENDED = frozenset({"Succeeded", "Failed"})

ModelOf = Callable[[str], Model | None]


class NoPrediction(KoordError):
    """Something that a prediction needs is not there."""


class Outcome(NamedTuple):
    """What a predictor says: None where it cannot be said.

    Attributes:
        reclaimable: of what prod pods asked for; this much they will not need.
        peak: what they will need at most, margin included.
    """

    reclaimable: Amount | None
    peak: Amount | None


class PodPeaks:
    """Pod by pod: each has its own peak, and one that is young is taken to need all that it asked for."""

    def __init__(self, models: ModelOf, settings: PredictionSettings, now_ns: int) -> None:
        self._models, self._settings, self._now_ns = models, settings, now_ns
        self._seen: set[str] = set()
        self._unreclaimable = self._reclaimable = self._unpredicted = ZERO

    def add(self, pod: Pod) -> None:
        """Count a pod.

        Raises:
            NoPrediction: it was counted before, or is old enough and has no model.
        """
        uid = pod.metadata.uid
        if priority(pod).value not in _PROD:
            return
        if uid in self._seen:
            raise NoPrediction(f"pod {pod.metadata.key} was counted already")
        self._seen.add(uid)
        request = _request(pod)
        if _age_ns(pod, self._now_ns) <= self._settings.cold_start_ns:
            self._unpredicted = self._unpredicted.plus(request)
            return
        if pod.metadata.deletion_timestamp or pod.status.phase in _ENDED:
            return
        model = self._models(uid)
        if model is None:
            self._unpredicted = self._unpredicted.plus(request)
            raise NoPrediction(f"pod {pod.metadata.key} has no model")
        peak = _peak(model, self._settings)
        self._unreclaimable = self._unreclaimable.plus(peak)
        self._reclaimable = self._reclaimable.plus(request.minus(peak).not_negative())

    def outcome(self, allocatable: Amount | None) -> Outcome:
        """What the pods counted so far amount to on a node that has this much to give; None: the node is not known."""
        peak = self._unreclaimable.plus(self._unpredicted)
        if allocatable is None:
            return Outcome(None, peak)
        free = allocatable.minus(self._unreclaimable).not_negative()
        return Outcome(free.smallest(self._reclaimable), peak)


class ClassPeaks:
    """By class: the peak of all prod pods together, which is less than the sum of their peaks."""

    def __init__(self, models: ModelOf, settings: PredictionSettings) -> None:
        self._models, self._settings = models, settings
        self._request = ZERO

    def add(self, pod: Pod) -> None:
        """Count a pod."""
        if priority(pod).value not in _PROD or pod.metadata.deletion_timestamp or pod.status.phase in _ENDED:
            return
        self._request = self._request.plus(_request(pod))

    def outcome(self, allocatable: Amount | None) -> Outcome:
        """As of PodPeaks; nothing can be said while one of the models is missing."""
        total = ZERO
        for item in (SYSTEM, *_PROD):
            model = self._models(item_key(item))
            if model is None:
                return Outcome(None, None)
            total = total.plus(_raw_peak(model))
        peak = _with_margin(total, self._settings)
        if allocatable is None:
            return Outcome(None, peak)
        asked = self._request.minus(peak).not_negative()
        return Outcome(allocatable.minus(peak).not_negative().smallest(asked), peak)


class Peaks(NamedTuple):
    """The predictors' answers.

    Attributes:
        failed: of each pod, whether the first predictor could not take it; the second one is not asked then.
        both: per resource the smaller reclaimable and the larger peak.
    """

    pods: Outcome
    classes: Outcome
    both: Outcome
    failed: tuple[bool, ...]


def predict(
    pods: Iterable[Pod], allocatable: Amount | None, models: ModelOf, settings: PredictionSettings, now_ns: int
) -> Peaks:
    """What the prod pods of a node will not need."""
    by_pod, by_class = PodPeaks(models, settings, now_ns), ClassPeaks(models, settings)
    failed = []
    for pod in pods:
        try:
            by_pod.add(pod)
        except NoPrediction:
            failed.append(True)
            continue
        failed.append(False)
        by_class.add(pod)
    one, other = by_pod.outcome(allocatable), by_class.outcome(allocatable)
    return Peaks(one, other, _both(one, other), tuple(failed))


def allocatable_of(node: Node | None) -> Amount | None:
    """What a node has to give before amplification; None when it is not known."""
    if node is None:
        return None
    stated = _raw((node.metadata.annotations or {}).get(RAW_ALLOCATABLE))
    quantities = node.status.allocatable if stated is None else stated
    if quantities is None:
        return None
    return Amount(nanos(str(quantities.get("cpu", "0"))), nanos(str(quantities.get("memory", "0"))))


def _raw(text: str | None) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        found: Mapping[str, Any] | None = read_json(text, dict[str, str | int | float] | None)
        for size in (found or {}).values():
            nanos(str(size))
    except (msgspec.DecodeError, BadQuantity):
        return None
    return found


def _both(one: Outcome, other: Outcome) -> Outcome:
    reclaimable = peak = None
    if one.reclaimable is not None and other.reclaimable is not None:
        reclaimable = one.reclaimable.smallest(other.reclaimable)
    if one.peak is not None and other.peak is not None:
        peak = one.peak.largest(other.peak)
    return Outcome(reclaimable, peak)


def _peak(model: Model, settings: PredictionSettings) -> Amount:
    return _with_margin(_raw_peak(model), settings)


def _raw_peak(model: Model) -> Amount:
    cpu_milli, memory = model.predict(0.95, 0.98)
    return Amount(cpu_milli * MILLI, memory * NANO)


def _with_margin(amount: Amount, settings: PredictionSettings) -> Amount:
    factor = float(100 + settings.safety_margin_percent) / 100
    return scaled(amount, factor, factor)


def _request(pod: Pod) -> Amount:
    asked = pod_requests(pod)
    return Amount(asked.get("cpu", 0), asked.get("memory", 0))


def _age_ns(pod: Pod, now_ns: int) -> int:
    try:
        created = instant_ns(pod.metadata.creation_timestamp or "")
    except BadTime:
        return now_ns
    return now_ns - created
