"""Prediction of the requests that prod pods will not use, by two predictors and the smaller of both.

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
from shared.kube.node import RAW_ALLOCATABLE, Node
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.prediction.usage_models import SYSTEM, Model, PredictionSettings, item_key

_PROD = (Priority.PROD.value, Priority.NONE.value)

ModelOf = Callable[[str], Model | None]


class NoPrediction(KoordError):
    """An input of a prediction is missing."""


class Outcome(NamedTuple):
    """The result of a predictor; None where an input is missing.

    Attributes:
        reclaimable: the part of the requests of prod pods that they will not use.
        peak: their predicted peak usage, safety margin included.
    """

    reclaimable: Amount | None
    peak: Amount | None


class PodPeaks:
    """Predicts pod by pod: each has its own peak, and a young pod counts with all its requests."""

    def __init__(self, models: ModelOf, settings: PredictionSettings, now_ns: int) -> None:
        self._models, self._settings, self._now_ns = models, settings, now_ns
        self._seen: set[str] = set()
        self._unreclaimable = self._reclaimable = self._unpredicted = ZERO

    def add(self, pod: Pod) -> None:
        """Adds a pod.

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
        if pod.metadata.deletion_timestamp or pod.status.phase in ENDED_PHASES:
            return
        model = self._models(uid)
        if model is None:
            self._unpredicted = self._unpredicted.plus(request)
            raise NoPrediction(f"pod {pod.metadata.key} has no model")
        peak = _peak(model, self._settings)
        self._unreclaimable = self._unreclaimable.plus(peak)
        self._reclaimable = self._reclaimable.plus(request.minus(peak).not_negative())

    def outcome(self, allocatable: Amount | None) -> Outcome:
        """Returns the result for the added pods on a node with this allocatable; None: the node is unknown."""
        peak = self._unreclaimable.plus(self._unpredicted)
        if allocatable is None:
            return Outcome(None, peak)
        free = allocatable.minus(self._unreclaimable).not_negative()
        return Outcome(free.smallest(self._reclaimable), peak)


class ClassPeaks:
    """Predicts by priority class: the peak of all prod pods together, which is less than the sum of their peaks."""

    def __init__(self, models: ModelOf, settings: PredictionSettings) -> None:
        self._models, self._settings = models, settings
        self._request = ZERO

    def add(self, pod: Pod) -> None:
        """Adds a pod."""
        if priority(pod).value not in _PROD or pod.metadata.deletion_timestamp or pod.status.phase in ENDED_PHASES:
            return
        self._request = self._request.plus(_request(pod))

    def outcome(self, allocatable: Amount | None) -> Outcome:
        """Returns the result as PodPeaks does; None while one of the models is missing."""
        total = ZERO
        for item in (SYSTEM, *_PROD):
            model = self._models(item_key(item))
            if model is None:
                return Outcome(None, None)
            total = total.plus(_raw_peak(model))
        peak = _with_margin(total, self._settings)
        if allocatable is None:
            return Outcome(None, peak)
        unused = self._request.minus(peak).not_negative()
        return Outcome(allocatable.minus(peak).not_negative().smallest(unused), peak)


class Peaks(NamedTuple):
    """The results of both predictors.

    Attributes:
        failed: of each pod, whether the first predictor failed; the second one skips the pod then.
        both: per resource the smaller reclaimable and the larger peak.
    """

    pods: Outcome
    classes: Outcome
    both: Outcome
    failed: tuple[bool, ...]


def predict(
    pods: Iterable[Pod], allocatable: Amount | None, models: ModelOf, settings: PredictionSettings, now_ns: int
) -> Peaks:
    """Predicts the requests of a node's prod pods that they will not use."""
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
    """Returns a node's allocatable before amplification; None when it is unknown."""
    if node is None:
        return None
    raw = _raw((node.metadata.annotations or {}).get(RAW_ALLOCATABLE))
    quantities = node.status.allocatable if raw is None else raw
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
    requests = pod_requests(pod)
    return Amount(requests.get("cpu", 0), requests.get("memory", 0))


def _age_ns(pod: Pod, now_ns: int) -> int:
    try:
        created = instant_ns(pod.metadata.creation_timestamp or "")
    except BadTime:
        return now_ns
    return now_ns - created
