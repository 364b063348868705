"""QoS classes of a pod: Koordinator's (LSE, LSR, LS, BE, SYSTEM) and Kubernetes' own, from which they default.

Source: spec/api.md 3; upstream apis/extension/{qos,qos_utils}.go; Kubernetes' pod QoS rules, pod-level resources included.
"""

from collections.abc import Iterable
from enum import StrEnum

from shared.kube.pod import Pod, ResourceRequirements
from shared.kube.quantity import nanos

LABEL = "koordinator.sh/qosClass"
"""The label by which a pod states its QoS class."""


class QoS(StrEnum):
    """Koordinator's QoS class; NONE is what an unlabelled pod states."""

    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"
    NONE = ""


_BY_TEXT = {qos.value: qos for qos in QoS}
_BY_KUBERNETES = {"Guaranteed": QoS.LSR, "Burstable": QoS.LS, "BestEffort": QoS.BE}


def raw_qos(pod: Pod) -> QoS:
    """The class that the pod's label states; NONE without a label, or with one that names no class."""
    labels = pod.metadata.labels
    return _BY_TEXT.get(labels.get(LABEL, ""), QoS.NONE) if labels else QoS.NONE


def qos(pod: Pod) -> QoS:
    """The stated class, else the one that the Kubernetes class stands for."""
    return raw_qos(pod) or _BY_KUBERNETES.get(kubernetes_qos(pod), QoS.NONE)


def kubernetes_qos(pod: Pod) -> str:
    """Guaranteed, Burstable or BestEffort: what the status says, else computed from cpu and memory.

    Guaranteed: every container has both limits, and requests equal limits in sum. BestEffort: nothing above zero is asked.
    Pod-level resources are taken instead of the containers' when they are set at all.
    """
    return pod.status.qos_class or _computed(pod)


def _computed(pod: Pod) -> str:
    spec = pod.spec
    stated: tuple[ResourceRequirements | None, ...]
    if spec.resources is not None:
        stated, each_needs_limits = (spec.resources,), bool(spec.resources.limits)
    else:
        stated, each_needs_limits = tuple(c.resources for c in (*spec.containers, *spec.init_containers)), True
    requests = _positive(resources.requests for resources in stated if resources)
    limits = _positive(resources.limits for resources in stated if resources)
    if not requests and not limits:
        return "BestEffort"
    limited = not each_needs_limits or all(
        resources is not None and len(_positive((resources.limits,))) == 2 for resources in stated
    )
    equal = all(limits.get(name) == amount for name, amount in requests.items())
    return "Guaranteed" if limited and equal and len(requests) == len(limits) else "Burstable"


def _positive(lists: Iterable[dict[str, str] | None]) -> dict[str, int]:
    """Sum of what the lists hold of cpu and memory above zero, in nanos."""
    total: dict[str, int] = {}
    for quantities in lists:
        for name in ("cpu", "memory"):
            if quantities and (amount := nanos(quantities.get(name, "0"))) > 0:
                total[name] = total.get(name, 0) + amount
    return total
