"""Validation of a pod's QoS class, priority class and requests: valid combinations, and immutable fields.

Source: spec/api.md 3, 5.4 groups 1, 2 and 6; upstream pkg/webhook/pod/validating.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shared.admission.feature_gates import Gates
from shared.admission.pod.extended_resource_spec import NAMES
from shared.admission.pod.pod_json import Raw, annotations_of, key_of, labels_of, pod_of
from shared.admission.rejection import AdmissionRejected
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import SUB_PRIORITY, Priority, raw_priority
from shared.domain.qos import LABEL, QoS, raw_qos
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.quantity import milli

RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
REQUIRED_LABELS = "pod-enhanced-validator-config"
"""The ConfigMap with the labels that pods must have."""
SKIP_ENHANCED = "pod.koordinator.sh/skip-enhanced-validation"

_NO_BE = (Priority.NONE, Priority.PROD)
_NO_LSR = (Priority.NONE, Priority.MID, Priority.BATCH, Priority.FREE)


class MultipleRejections(AdmissionRejected):
    """A pod violates several rules of one group.

    Attributes:
        codes: of all violations, each once, sorted.
    """

    def __init__(self, pod: Raw, problems: Mapping[str, str]) -> None:
        self.codes = sorted(problems)
        super().__init__("colocation", f"pod {key_of(pod)}: {'; '.join(problems.values())}")


def check_reservation(pod: Raw) -> None:
    """Rejects pods of users that represent reservations.

    Raises:
        AdmissionRejected: `reservation`.
    """
    if RESERVE_POD in annotations_of(pod):
        raise AdmissionRejected(
            "reservation", f"pod {key_of(pod)}: the annotation {RESERVE_POD} cannot be set by users; remove it"
        )


def check_colocation(pod: Raw, old: Raw | None, gates: Gates) -> None:
    """Checks all rules about classes and requests.

    Args:
        old: the pod before an update; None at its creation.

    Raises:
        MultipleRejections: all violations.
    """
    typed = pod_of(pod)
    problems: dict[str, str] = {}
    if old is not None:
        problems.update(_changed(pod, typed, old, gates))
    problems.update(_combined(typed))
    if problems:
        raise MultipleRejections(pod, problems)


def _changed(pod: Raw, typed: Pod, old: Raw, gates: Gates) -> Iterator[tuple[str, str]]:
    before = pod_of(old)
    if raw_qos(typed) != raw_qos(before):
        yield "immutableQoS", f"labels.{LABEL} is {raw_qos(before) or 'none'!s} and cannot be changed"
    if raw_priority(typed) != raw_priority(before):
        priority_class = raw_priority(before).value or "none"
        yield "immutablePriorityClass", f"spec.priority: its class is {priority_class} and cannot be changed"
    if "ColocationProfileSkipValidatingPriority" in gates:
        return
    if labels_of(pod).get(SUB_PRIORITY, "") != labels_of(old).get(SUB_PRIORITY, ""):
        yield "immutableSubPriority", f"labels.{SUB_PRIORITY} cannot be changed"


def _combined(pod: Pod) -> Iterator[tuple[str, str]]:
    qos, class_ = raw_qos(pod), raw_priority(pod)
    requests = pod_requests(pod)
    if qos is not QoS.BE and any(requests.get(name) for name in NAMES):
        yield "batchNeedsBE", f"it requests batch resources, so labels.{LABEL} must be BE"
    if qos is QoS.BE and class_ in _NO_BE:
        message = f"QoS BE cannot be combined with priority class {class_.value or 'none'}; use koord-mid, koord-batch or koord-free"
        yield "forbiddenBE", message
    if qos is QoS.LSR and class_ in _NO_LSR:
        message = f"QoS LSR cannot be combined with priority class {class_.value or 'none'}; use koord-prod"
        yield "forbiddenLSR", message
    if qos in (QoS.LSR, QoS.LSE):
        cores = milli(requests.get("cpu", 0))
        if not cores:
            yield "cpuRequired", f"QoS {qos.value} needs a cpu request"
        elif cores % 1000:
            yield "cpuInteger", f"QoS {qos.value} needs whole cores, not {cores}m"


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    required_labels: tuple[str, ...] = ()
    namespace_whitelist: tuple[str, ...] = ()


class RequiredLabels(msgspec.Struct, frozen=True):
    """The labels that the ConfigMap REQUIRED_LABELS requires."""

    rules: tuple[_Rule, ...] = ()

    def check(self, pod: Raw, namespace: str) -> None:
        """Checks that a pod has them.

        Raises:
            AdmissionRejected: `enhanced`.
        """
        labels = labels_of(pod)
        if labels.get(SKIP_ENHANCED) == "true":
            return
        for rule in self.rules:
            missing = [label for label in rule.required_labels if label not in labels]
            if missing and namespace not in rule.namespace_whitelist:
                message = f"pod {key_of(pod)}: rule {rule.name} requires the labels {', '.join(missing)}; add them"
                raise AdmissionRejected("enhanced", message)


def required_labels(config_map: Mapping[str, Any] | None, before: RequiredLabels) -> RequiredLabels:
    """Reads that ConfigMap: absent or disabled, it requires nothing; if it cannot be read, the last requirements stay."""
    data = (config_map or {}).get("data") or {}
    if data.get("enable", "").strip().lower() != "true":
        return RequiredLabels()
    try:
        return RequiredLabels(read_json(data.get("rules") or "[]", tuple[_Rule, ...]))
    except msgspec.MsgspecError:
        return before
