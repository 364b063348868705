"""Pods measured against their quota at admission, before any scheduler sees them: a reservation that only grows.

Each accepted pod raises the quota's `child-request`; the quota ledger replaces that with the truth. Functions of the quota's object and the
pods; the caller writes the number, and asks again with the object as it then is when another was faster.

Source: spec/quota.md 5.5; upstream pkg/webhook/quotaevaluate/evaluator.go.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.admission.feature_gates import Gates
from shared.admission.pod.pod_json import key_of, pod_of
from shared.admission.pod.pod_quota import Quotas, quota_name
from shared.admission.rejection import Refused
from shared.domain.amounts import Amounts, add, exceeding, mask, nonzero
from shared.domain.pod_requests import pod_requests, whole
from shared.kube.elastic_quota import DEFAULT, ROOT, SYSTEM, BadResourceList, resource_list, spec_amounts
from shared.kube.instants import SECOND, instant_ns
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
"""A quota whose max names none of these is not evaluated; with one of them, every resource of its max is."""


class Evaluated(NamedTuple):
    """What came of a batch.

    Attributes:
        refused: of each pod in its order; None where it may be created.
        child_request: what the quota's annotation is to say; None where that is as it was.
        added: what the accepted pods have added, for `again`.
    """

    refused: list[Refused | None]
    child_request: Amounts | None
    added: Amounts


def evaluated_by(pod: Raw, old: Raw | None, namespace: str, quotas: Quotas, gates: Gates) -> str:
    """The quota that a pod is measured against; empty for none.

    Args:
        old: the pod before an update, which is measured only when it comes to another quota; what it held there is not given back.
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
    """Measure pods against one quota in their order, each on top of those accepted before it.

    The limit is the annotation `admission`, where there is one, else max; a resource that it does not name is not limited.
    """
    try:
        counted, limit, base = _numbers(quota)
    except (BadResourceList, BadQuantity) as error:
        unreadable = Refused("quotaUnreadable", f"quota {key_of(quota)}: {error}")
        return Evaluated([unreadable] * len(pods), None, {})
    refused: list[Refused | None] = []
    added: Amounts = {}
    for pod in pods:
        use = asked(pod, counted, now_ns) if counted.keys() & COUNTED else {}
        after = add(add(base, added), use)
        short = exceeding(mask(after, use), limit)
        refused.append(_exceeded(quota, pod, use, add(base, added), limit, short) if short else None)
        if not short:
            added = add(added, use)
    return Evaluated(refused, add(base, added) if added else None, added)


def again(quota: Raw, added: Amounts) -> Amounts | None:
    """What the annotation is to say when another has written meanwhile; None when the whole batch has no room any more.

    None calls for `evaluate` of each pod anew.
    """
    try:
        counted, limit, base = _numbers(quota)
    except (BadResourceList, BadQuantity):
        return None
    use = nonzero(mask(added, counted))
    after = add(base, use)
    return None if exceeding(mask(after, use), limit) else after


def asked(pod: Raw, counted: Mapping[str, int], now_ns: int) -> Amounts:
    """What a pod asks for in these resources, overhead included; nothing when it has ended, or should have by now."""
    typed = pod_of(pod)
    if typed.status.phase in ("Succeeded", "Failed") or _is_overdue(pod, now_ns):
        return {}
    return nonzero(mask(whole(pod_requests(typed)), counted))


def _numbers(quota: Raw) -> tuple[Amounts, Amounts, Amounts]:
    """What is counted, the limit, and what is asked for already."""
    counted, metadata = spec_amounts((quota.get("spec") or {}).get("max")), quota["metadata"]
    return counted, resource_list(metadata, "admission") or counted, resource_list(metadata, "child-request") or {}


def _is_overdue(pod: Raw, now_ns: int) -> bool:
    metadata = pod["metadata"]
    deleted, grace_s = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return bool(deleted) and grace_s is not None and now_ns > instant_ns(deleted) + grace_s * SECOND


def _exceeded(
    quota: Raw, pod: Raw, use: Amounts, base: Amounts, limit: Mapping[str, int], short: Sequence[str]
) -> Refused:
    def listed(amounts: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {amount_text(name, amounts.get(name, 0))}" for name in short)

    message = (
        f"pod {key_of(pod)} asks for {listed(use)} of quota {key_of(quota)}, of which {listed(base)} is asked for already and "
        f"{listed(limit)} may be; ask for less, or have the quota raised"
    )
    return Refused("quotaExceeded", message)
