"""The order in which the plugins of kubernetes-sigs/descheduler take pods from a node: by priority and QoS class.

Source: spec/descheduler.md 1.8; upstream sorts those last among equals that prefer not to be evicted.
"""

from services.descheduler.load_aware.pod_order import KUBERNETES_RANK
from shared.domain.qos import kubernetes_qos
from shared.kube.pod import Pod

PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""Annotation of a pod that is better left alone, whatever its value."""

OrderKey = tuple[bool, int, int, bool]


def prefers_no_eviction(pod: Pod) -> bool:
    """Reports whether a pod's annotation prefers that it is left alone."""
    return PREFER_NO_EVICTION in (pod.metadata.annotations or {})


def priority_order(pod: Pod) -> OrderKey:
    """Returns the sort key: without a priority first, then lower ones, then BestEffort, Burstable and Guaranteed."""
    priority = pod.spec.priority
    return (priority is not None, priority or 0, KUBERNETES_RANK[kubernetes_qos(pod)], prefers_no_eviction(pod))
