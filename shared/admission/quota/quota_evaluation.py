"""Evaluation of pods against their quota at admission, before scheduling.

Each accepted pod raises the quota's `child-request`, which the quota ledger later replaces with the exact sum. Pure
functions of the quota's object and the pods; the caller writes the result, and evaluates again with the newer object
after a conflict.

Source: spec/quota.md 5.5; upstream pkg/webhook/quotaevaluate/evaluator.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.admission.feature_gates import Gates
from shared.admission.pod.pod_json import key_of, pod_of
from shared.admission.pod.pod_quota import Quotas, quota_name
from shared.admission.rejection import AdmissionRejected
from shared.domain.amounts import Amounts, add, exceeding, mask, nonzero
from shared.domain.pod_requests import pod_requests, whole
from shared.kube.elastic_quota import DEFAULT, ROOT, SYSTEM, BadResourceList, resource_list, spec_amounts
from shared.kube.instants import SECOND, instant_ns
from shared.kube.pod import ENDED_PHASES
from shared.kube.quantity import BadQuantity
from shared.kube.quantity_text import amount_text

Raw = Mapping[str, Any]

GATE, ON_UPDATE = "EnableQuotaAdmission", "EnableQuotaAdmissionOnUpdate"

COUNTED = frozenset(
    {
        *("cpu", "memory", "ephemeral-storage"),
        *("requests.cpu", "requests.memory", "requests.ephemeral-storage"),
        *("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"),
        *("nvidia.com/gpu", "koordinator.sh/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/gpu-memory-ratio"),
    }
)
"""A quota is evaluated only if its max names one of these; then in every resource of its max."""


class Evaluated(NamedTuple):
    """The result of evaluating a batch of pods.

    Attributes:
        refused: the rejection of each pod, in order; None where it may be created.
        child_request: the new value of the quota's annotation; None where it does not change.
        added: the sum of the accepted pods, for `again`.
    """

    rejections: list[AdmissionRejected | None]
    child_request: Amounts | None
    added: Amounts


def evaluated_by(pod: Raw, old: Raw | None, namespace: str, quotas: Quotas, gates: Gates) -> str:
    """Returns the quota that a pod is evaluated against; empty for none.

    Args:
        old: the pod before an update, which is evaluated only when it moves to another quota; the old quota's sum
            stays.
    """
    if GATE not in gates:
        return ""
    name = quota_name(pod, namespace, quotas, gates)
    if name in ("", DEFAULT, SYSTEM, ROOT):
        return ""
    if old is not None and (ON_UPDATE not in gates or quota_name(old, namespace, quotas, gates) == name):
        return ""
    return name


def evaluate(quota: Raw, pods: Sequence[Raw], now_ns: int) -> Evaluated:
    """Evaluates pods against one quota in order, each in addition to those accepted before it.

    The limit is the annotation `admission` where there is one, else max; a resource that it does not name has no limit.
    """
    try:
        counted, limit, base = _numbers(quota)
    except (BadResourceList, BadQuantity) as error:
        unreadable = AdmissionRejected("quotaUnreadable", f"quota {key_of(quota)}: {error}")
        return Evaluated([unreadable] * len(pods), None, {})
    rejections: list[AdmissionRejected | None] = []
    added: Amounts = {}
    for pod in pods:
        use = requests_of(pod, counted, now_ns) if counted.keys() & COUNTED else {}
        after = add(add(base, added), use)
        short = exceeding(mask(after, use), limit)
        rejections.append(_exceeded(quota, pod, use, add(base, added), limit, short) if short else None)
        if not short:
            added = add(added, use)
    return Evaluated(rejections, add(base, added) if added else None, added)


def again(quota: Raw, added: Amounts) -> Amounts | None:
    """Returns the new annotation after a concurrent write; None when the whole batch no longer fits.

    After None, call `evaluate` again for each pod.
    """
    try:
        counted, limit, base = _numbers(quota)
    except (BadResourceList, BadQuantity):
        return None
    use = nonzero(mask(added, counted))
    after = add(base, use)
    return None if exceeding(mask(after, use), limit) else after


def requests_of(pod: Raw, counted: Mapping[str, int], now_ns: int) -> Amounts:
    """Returns a pod's requests in these resources, overhead included; nothing after its end or its deadline."""
    typed = pod_of(pod)
    if typed.status.phase in ENDED_PHASES or _is_overdue(pod, now_ns):
        return {}
    return nonzero(mask(whole(pod_requests(typed)), counted))


def _numbers(quota: Raw) -> tuple[Amounts, Amounts, Amounts]:
    """Returns the counted resources, the limit, and the sum of earlier requests."""
    counted, metadata = spec_amounts((quota.get("spec") or {}).get("max")), quota["metadata"]
    return counted, resource_list(metadata, "admission") or counted, resource_list(metadata, "child-request") or {}


def _is_overdue(pod: Raw, now_ns: int) -> bool:
    metadata = pod["metadata"]
    deleted, grace_s = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return bool(deleted) and grace_s is not None and now_ns > instant_ns(deleted) + grace_s * SECOND


def _exceeded(
    quota: Raw, pod: Raw, use: Amounts, base: Amounts, limit: Mapping[str, int], short: Sequence[str]
) -> AdmissionRejected:
    def listed(amounts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {amount_text(name, amounts.get(name, 0))}" for name in short)

    message = (
        f"pod {key_of(pod)} requests {listed(use)} of quota {key_of(quota)}, of which {listed(base)} is requested already "
        f"and {listed(limit)} may be; ask for less, or have the quota raised"
    )
    return AdmissionRejected("quotaExceeded", message)
