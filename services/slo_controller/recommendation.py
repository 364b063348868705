"""Recommended requests for the containers of a workload, by histograms of their usage: the status of a Recommendation.

Reports are about pods; a pod's usage is divided among its containers in proportion to their requests. The histograms
live in this process and are not part of the State. `RecommendationUpdated` holds the recommended amounts and the
weights of the histograms, from which the next writer continues.

Source: spec/slo-controller.md 11.5, which leaves the algorithm open; parameters as of 11.1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import msgspec

from services.slo_controller.overcommit.change_threshold import differs
from services.slo_controller.state.pod_template import PodTemplate
from services.slo_controller.state.pods_on_nodes import RunningPod
from services.slo_controller.state.slo_state import SloState
from shared.domain.cpu_memory import MILLI, Amount, scaled
from shared.domain.node_selection import selects
from shared.events import Draft
from shared.events.intents import FieldsDesired
from shared.events.slo import RecommendationEnded, RecommendationUpdated
from shared.kube.compact_uid import Uid
from shared.kube.instants import SECOND, instant_text
from shared.kube.json_text import decode_with
from shared.kube.quantity import NANO, bytes_text, milli, milli_text, nanos, value
from shared.kube.resource_names import RECOMMENDATIONS
from shared.kube.selectors import LabelSelector
from shared.prediction.histogram import BadCheckpoint, Checkpoint
from shared.prediction.usage_models import Model, PredictionSettings

STATUS = "recommendation"
UPDATE_INTERVAL_NS = 60 * SECOND
SAVE_INTERVAL_NS = 600 * SECOND
"""Histograms are saved this often; recommended amounts are published when they changed by CHANGE_THRESHOLD."""

CHANGE_THRESHOLD = 0.1
LOW_CONFIDENCE, NO_OBJECTS, UNSUPPORTED = "LowConfidence", "NoObjectsMatched", "ConfigUnsupported"
_MESSAGES = {
    LOW_CONFIDENCE: "there are samples of less than a day",
    NO_OBJECTS: "no pod on a node matches the target",
    UNSUPPORTED: "the target names neither a workload of the kinds Deployment, ReplicaSet, StatefulSet, DaemonSet and Job nor a selector",
}
_KINDS = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"})


class _Weights(msgspec.Struct, frozen=True):
    cpu: Checkpoint
    memory: Checkpoint


_weights = msgspec.json.Decoder(_Weights)


class Recommender:
    """Trains histograms with usage reports, and drafts recommendations."""

    def __init__(self, settings: PredictionSettings | None = None) -> None:
        self._settings = settings or PredictionSettings()
        self._models: dict[str, dict[str, Model]] = {}
        self._since: dict[str, int] = {}
        self._sampled: dict[Uid, int] = {}  # uid -> instant of its newest sample
        self._updated_ns = 0

    def update(self, state: SloState, now_ns: int) -> list[Draft]:
        """Adds the samples since the last call, and drafts the recommendations that changed; at most once a minute."""
        if now_ns - self._updated_ns < UPDATE_INTERVAL_NS or not (state.recommendations or state.recommended):
            return []
        self._updated_ns = now_ns
        drafts = []
        for name in [name for name in state.recommended if name not in state.recommendations]:
            self._models.pop(name, None)
            self._since.pop(name, None)
            drafts.append(Draft(RecommendationEnded(name=name)))
        sampled: dict[Uid, int] = {}
        groups = state.pods.running_by_template({name.partition("/")[0] for name in state.recommendations})
        for name, target in state.recommendations.items():
            self._restore(state, name)
            pods = matching(groups.get(name.partition("/")[0], ()), target)
            self._learn(state, name, pods, sampled)
            drafts += self._recommend(state, name, target, is_matched=bool(pods), now_ns=now_ns)
        self._sampled = sampled
        return drafts

    def _restore(self, state: SloState, name: str) -> None:
        if name in self._models:
            return
        models = self._models[name] = {}
        made = state.recommended.get(name)
        self._since[name] = made.since_ns if made else 0
        for container, text in (made.models if made else {}).items():
            model = Model(self._settings)
            try:
                stored = decode_with(_weights, text)
                model.cpu.load(stored.cpu)
                model.memory.load(stored.memory)
            except (msgspec.DecodeError, BadCheckpoint):
                continue  # the container starts with an empty histogram
            models[container] = model

    def _learn(self, state: SloState, name: str, pods: Iterable[RunningPod], sampled: dict[Uid, int]) -> None:
        for _, uid, pod in pods:
            report, _ = state.usage_report(pod.node)
            found = report.pods.get(pod.key)
            sampled[uid] = max(sampled.get(uid, 0), report.at_ns)
            if found is None or report.at_ns <= self._sampled.get(uid, 0):
                continue
            self._since[name] = self._since[name] or report.at_ns
            for container, cores, size in usage_by_container(pod.template, found):
                model = self._models[name].setdefault(container, Model(self._settings))
                model.trained_ns = report.at_ns
                model.cpu.add(cores, 1.0, report.at_ns)
                model.memory.add(size, 1.0, report.at_ns)

    def _recommend(
        self, state: SloState, name: str, target: Mapping[str, Any], *, is_matched: bool, now_ns: int
    ) -> list[Draft]:
        models, since_ns = self._models[name], self._since[name]
        containers = {container: _amounts(model, self._settings) for container, model in sorted(models.items())}
        conditions = tuple(_conditions(target, since_ns, self._settings, is_matched=is_matched, now_ns=now_ns))
        before = state.recommended.get(name)
        shown = {container: _texts(amount) for container, amount in containers.items()}
        is_news = (
            before is None
            or state.desired(RECOMMENDATIONS, name, STATUS) is None
            or before.conditions != conditions
            or _changed(before.containers, shown)
        )
        trained = any(before is not None and model.trained_ns > before.decided_ns for model in models.values())
        if not is_news and not (trained and before is not None and now_ns - before.decided_ns >= SAVE_INTERVAL_NS):
            return []
        if not is_news and before is not None:
            shown = before.containers  # only the histograms are saved; the recommended amounts stay
        made = RecommendationUpdated(
            name=name,
            decided_ns=now_ns,
            since_ns=since_ns,
            containers=shown,
            conditions=conditions,
            models={container: _stored(model) for container, model in sorted(models.items())},
        )
        drafts = [Draft(made)]
        if is_news:
            patch = {"status": _status(made)}
            drafts.append(
                Draft(
                    FieldsDesired(resource=RECOMMENDATIONS, name=name, fields=STATUS, patch=patch, subresource="status")
                )
            )
        return drafts


def matching(groups: Sequence[Sequence[RunningPod]], target: Mapping[str, Any]) -> list[RunningPod]:
    """Returns the pods that a Recommendation selects, in the order of their observation.

    Args:
        groups: the running pods of its namespace, by template.
    """
    workload = target.get("workload") or {}
    selector = _selector(target)
    found: list[RunningPod] = []
    for group in groups:
        template = group[0].pod.template
        if target.get("type") == "podSelector":
            if selector is not None and selects(selector, dict(template.labels)):
                found += group
        elif template.owner == (workload.get("kind"), workload.get("name")):
            found += group
    return sorted(found, key=itemgetter(0))


def usage_by_container(template: PodTemplate, usage: Amount) -> list[tuple[str, float, float]]:
    """Divides a pod's usage among its containers: (name, cores, bytes).

    In proportion to the requests; evenly where no container requests anything.
    """
    parts = template.containers
    cpu, memory = sum(part.cpu for part in parts), sum(part.memory for part in parts)
    return [
        (
            part.name,
            usage.cpu / NANO * (part.cpu / cpu if cpu else 1 / len(parts)),
            usage.memory / NANO * (part.memory / memory if memory else 1 / len(parts)),
        )
        for part in parts
    ]


def _selector(target: Mapping[str, Any]) -> LabelSelector | None:
    try:
        return msgspec.convert(target.get("podSelector"), LabelSelector | None)
    except msgspec.ValidationError:
        return None


def _conditions(
    target: Mapping[str, Any], since_ns: int, settings: PredictionSettings, *, is_matched: bool, now_ns: int
) -> Iterator[str]:
    by_selector = target.get("type") == "podSelector" and _selector(target) is not None
    by_workload = target.get("type") == "workload" and (target.get("workload") or {}).get("kind") in _KINDS
    if not by_selector and not by_workload:
        yield UNSUPPORTED
        return
    if not is_matched:
        yield NO_OBJECTS
    if not since_ns or now_ns - since_ns < settings.cold_start_ns:
        yield LOW_CONFIDENCE


def _amounts(model: Model, settings: PredictionSettings) -> Amount:
    cpu_milli, memory = model.predict(0.95, 0.98)
    factor = float(100 + settings.safety_margin_percent) / 100
    return scaled(Amount(cpu_milli * MILLI, memory * NANO), factor, factor)


def _texts(amount: Amount) -> dict[str, str]:
    return {"cpu": milli_text(milli(amount.cpu)), "memory": bytes_text(value(amount.memory))}


def _changed(old: Mapping[str, Mapping[str, str]], new: Mapping[str, Mapping[str, str]]) -> bool:
    if old.keys() != new.keys():
        return True
    return any(
        differs(nanos(old[container][resource]), nanos(size), CHANGE_THRESHOLD)
        for container, sizes in new.items()
        for resource, size in sizes.items()
    )


def _stored(model: Model) -> str:
    return msgspec.json.encode(_Weights(model.cpu.save(), model.memory.save())).decode()


def _status(made: RecommendationUpdated) -> dict[str, Any]:
    at = instant_text(made.decided_ns // SECOND * SECOND)
    return {
        "updateTime": at,
        "podStatus": {
            "containerStatuses": [
                {"containerName": container, "resources": sizes} for container, sizes in made.containers.items()
            ]
        },
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": at, "reason": name, "message": _MESSAGES[name]}
            for name in made.conditions
        ],
    }
