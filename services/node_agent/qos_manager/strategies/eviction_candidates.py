"""Pods that may be evicted: those whose annotations and labels allow it, and their order.

Source: spec/node-agent.md 3.2, 3.3.
"""

import re
from collections.abc import Iterable

import msgspec

from services.node_agent.qos_manager.strategies.pod_containers import is_active
from shared.domain.priority import SUB_PRIORITY, priority_value
from shared.domain.qos import QoS, raw_qos
from shared.kube.json_text import read_json
from shared.kube.pod import Pod

ENABLED = "koordinator.sh/eviction-enabled"
EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
POLICY = "koordinator.sh/eviction-policy"


def allows(pod: Pod, feature: str) -> bool:
    """Reports whether the pod allows evictions by a feature; an annotation that is not a list of names allows none."""
    text = (pod.metadata.annotations or {}).get(POLICY)
    if text is None:
        return True
    try:
        return feature in read_json(text, list[str])
    except msgspec.MsgspecError:
        return False


def best_effort(pods: Iterable[Pod], feature: str) -> list[Pod]:
    """Returns the pods that a best-effort strategy may evict: those labelled BE."""
    return [pod for pod in pods if raw_qos(pod) is QoS.BE and allows(pod, feature)]


def by_priority(pods: Iterable[Pod], feature: str, most: int) -> list[Pod]:
    """Returns the candidates of strategies by priority: active, up to a priority, with the label that allows it."""
    return [
        pod
        for pod in pods
        if is_active(pod)
        and priority_value(pod) <= most
        and (pod.metadata.labels or {}).get(ENABLED) == "true"
        and allows(pod, feature)
    ]


def order(pod: Pod) -> tuple[int, int, int]:
    """Returns the sort key of strategies by priority: eviction priority, priority, sub-priority; lowest first."""
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    return (
        _number(annotations.get(EVICTION_PRIORITY), 31),
        priority_value(pod),
        _number(labels.get(SUB_PRIORITY), 63, priority_value(pod)),
    )


def _number(text: str | None, bits: int, otherwise: int = 0) -> int:
    """Parses a number of so many bits; returns another value when it is invalid."""
    if text is None or not re.fullmatch(r"[+-]?\d{1,19}", text):
        return otherwise
    found = int(text)
    return found if -(1 << bits) <= found < 1 << bits else otherwise
