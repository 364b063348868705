"""The order in which the pods of a node leave it.

Source: spec/descheduler.md 2.9; upstream pkg/descheduler/utils/sorter.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from services.descheduler.load_aware.measured_node import Amounts, PodOnNode
from shared.domain.priority import Priority, priority
from shared.domain.qos import QoS, kubernetes_qos, qos
from shared.kube.instants import BadTime, instant_ns
from shared.kube.pod import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
NEVER = 2**31 - 1
"""The eviction cost of a pod that never moves."""

_COST = re.compile(r"0|-?[1-9][0-9]*").fullmatch
_CLASSES = {Priority.FREE: 1, Priority.BATCH: 2, Priority.MID: 3, Priority.PROD: 4, Priority.NONE: 5}
KUBERNETES_RANK = {"BestEffort": 1, "Burstable": 2, "Guaranteed": 3}
_QOS = {QoS.BE: 1, QoS.LS: 2, QoS.LSR: 3, QoS.LSE: 4, QoS.SYSTEM: 4, QoS.NONE: 5}

SortKey = tuple[Any, ...]


def cost(pod: Pod, annotation: str) -> int:
    """Returns the cost that an annotation gives: an int32 without a leading `+` or zeros; 0 for any other text."""
    text = (pod.metadata.annotations or {}).get(annotation, "0")
    number = int(text) if len(text) <= 11 and _COST(text) else 0
    return number if -(2**31) <= number < 2**31 else 0


def rank(pod: Pod) -> tuple[int, ...]:
    """Returns keys 1 to 6 of the order: classes, priority and costs."""
    return (
        _CLASSES[priority(pod)],
        pod.spec.priority or 0,
        KUBERNETES_RANK[kubernetes_qos(pod)],
        _QOS[qos(pod)],
        cost(pod, DELETION_COST),
        cost(pod, EVICTION_COST),
    )


def age_key(pod: Pod) -> int:
    """Returns the last key: newer pods first; one without a time counts as the oldest."""
    try:
        return -instant_ns(pod.metadata.creation_timestamp) if pod.metadata.creation_timestamp else 0
    except BadTime:
        return 0


def usage_score(used: Amounts, excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Returns how well a pod's usage covers what a node has in excess; larger is better.

        f(u, E) = 0 where E = 0; q = u / E; q below 1 gives q, else 1 / q + 1
        score = sum(w * f) / sum(w) over the resources in excess that the pod's report has; 0 without any

    Args:
        excess: by overloaded resource, usage minus threshold.
    """
    score, total = 0.0, 0
    for resource, over in excess.items():
        if resource in used:
            weight = weights.get(resource, 0)
            score += _covered(used[resource], over) * weight
            total += weight
    return score / total if total else 0.0


def order_key(
    usage: Mapping[str, Amounts], excess: Mapping[str, int], weights: Mapping[str, int]
) -> Callable[[PodOnNode], SortKey]:
    """Returns the sort key by which pods leave a node, the first to leave first.

    Args:
        usage: pod -> measured usage; pods without one come last among equals.
        excess: by overloaded resource, usage minus threshold.
    """

    def key(each: PodOnNode) -> SortKey:
        used = usage.get(each.key)
        score = (1, 0.0) if used is None else (0, -usage_score(used, excess, weights))
        if each.rank is None:
            each.rank = (*rank(each.pod), age_key(each.pod))
        *first, age = each.rank
        return (*first, *score, age)

    return key


def _covered(used: int, excess: int) -> float:
    if excess == 0:
        return 0.0
    share = used / excess
    return share if share < 1 else 1 / share + 1
