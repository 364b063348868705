"""QoS classes of a pod: Koordinator's (LSE, LSR, LS, BE, SYSTEM) and Kubernetes' own, from which they default.

Source: spec/api.md 3; upstream apis/extension/{qos,qos_utils}.go; Kubernetes' pod QoS rules, pod-level resources
included.
"""

from collections.abc import Iterable
from enum import StrEnum

from shared.kube.pod import Pod, ResourceRequirements
from shared.kube.quantity import nanos

LABEL = "koordinator.sh/qosClass"
"""The label of a pod's QoS class."""


class QoS(StrEnum):
    """Koordinator's QoS class; NONE is the class of a pod without the label."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


_BY_TEXT = {qos.value: qos for qos in QoS}
_BY_KUBERNETES = {"Guaranteed": QoS.LSR, "Burstable": QoS.LS, "BestEffort": QoS.BE}


def raw_qos(pod: Pod) -> QoS:
    """Returns the class of the pod's label; NONE without a label, or with an unknown class."""
    labels = pod.metadata.labels
    return _BY_TEXT.get(labels.get(LABEL, ""), QoS.NONE) if labels else QoS.NONE


def qos(pod: Pod) -> QoS:
    """Returns the class of the label, else the default for the pod's Kubernetes class."""
    return raw_qos(pod) or _BY_KUBERNETES.get(kubernetes_qos(pod), QoS.NONE)


def kubernetes_qos(pod: Pod) -> str:
    """Returns Guaranteed, Burstable or BestEffort: from the status, else computed from cpu and memory.

    Guaranteed: every container has both limits, and the sums of requests and limits are equal. BestEffort: no request
        or
    limit above zero. Pod-level resources replace the containers' where they are set.
    """
    return pod.status.qos_class or _computed(pod)


def is_best_effort(pod: Pod) -> bool:
    """Reports whether a pod counts as best effort: by its label, or by its Kubernetes class."""
    return raw_qos(pod) is QoS.BE or kubernetes_qos(pod) == "BestEffort"


def _computed(pod: Pod) -> str:
    spec = pod.spec
    lists: tuple[ResourceRequirements | None, ...]
    if spec.resources is not None:
        lists, each_needs_limits = (spec.resources,), bool(spec.resources.limits)
    else:
        lists, each_needs_limits = tuple(c.resources for c in (*spec.containers, *spec.init_containers)), True
    requests = _positive(resources.requests for resources in lists if resources)
    limits = _positive(resources.limits for resources in lists if resources)
    if not requests and not limits:
        return "BestEffort"
    limited = not each_needs_limits or all(
        resources is not None and len(_positive((resources.limits,))) == 2 for resources in lists
    )
    equal = all(limits.get(name) == amount for name, amount in requests.items())
    return "Guaranteed" if limited and equal and len(requests) == len(limits) else "Burstable"


def _positive(lists: Iterable[dict[str, str] | None]) -> dict[str, int]:
    """Sums the cpu and memory entries above zero, in nanos."""
    total: dict[str, int] = {}
    for quantities in lists:
        for name in ("cpu", "memory"):
            if quantities and (amount := nanos(quantities.get(name, "0"))) > 0:
                total[name] = total.get(name, 0) + amount
    return total
