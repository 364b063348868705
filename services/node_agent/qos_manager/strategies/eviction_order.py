"""Candidates of cpu and memory evictions, their order, and the release that ends an eviction.

Source: spec/node-agent.md 3.2, 3.3.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from services.node_agent.qos_manager.strategies.node_pod import is_active
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority, priority_value, resource_of
from shared.domain.qos import QoS, raw_qos
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.quantity import amount, nanos

ENABLED = "koordinator.sh/eviction-enabled"
EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
POLICY = "koordinator.sh/eviction-policy"
SUB_PRIORITY = "koordinator.sh/priority"

Amounts = Mapping[str, int]
"""Resource -> milli-cores or bytes."""


class Kind(Enum):
    """The unit in which the release of a pod is counted."""

    REQUEST = "podResourceRequest"
    USED = "podUsed"


class Candidate(NamedTuple):
    """A pod that may be evicted.

    Attributes:
        used: its usage, in milli-cores or bytes.
    """

    pod: Pod
    used: int = 0


class Task(NamedTuple):
    """An amount to release, and the candidates in order.

    Attributes:
        part: the amount that the eviction of a pod releases for this task.
    """

    feature: str
    kind: Kind
    release: Amounts
    candidates: Sequence[Candidate]
    part: Callable[[Candidate], Amounts]


class NoTask(Enum):
    """The reason why a strategy evicts nothing."""

    NONE = "none"
    INVALID = "invalidConfig"


Outcome = Task | NoTask


class Eviction(NamedTuple):
    """An attempted eviction."""

    pod: Pod
    feature: str
    done: bool


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


def request_of(pod: Pod, extended: str) -> int:
    """Returns a pod's request of an extended resource, in whole units, 0 without one.

    The sum over its containers and sidecars.
    """
    running = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    texts = [
        requests[extended] for c in running if extended in (requests := (c.resources and c.resources.requests) or {})
    ]
    return sum(amount(extended, nanos(text)) for text in texts)


def class_request(pod: Pod, resource: str) -> tuple[str, int]:
    """Returns the resource that a pod of this class requests in place of `cpu` or `memory`, and its request.

    0 without one. Mid and batch pods request extended resources. Every other pod counts as a pod on a node does, with
    init containers and overhead.
    """
    class_ = priority(pod)
    if class_ in {Priority.MID, Priority.BATCH}:
        extended = resource_of(class_, resource)
        return extended, request_of(pod, extended)
    return resource, amount(resource, pod_requests(pod).get(resource, 0))


class Allocatable(NamedTuple):
    """Limit of requests for `cpu` or `memory` and its batch and mid counterparts.

    Attributes:
        resource: `cpu` or `memory`.
        threshold_percent, lower_percent: requests above the first are released down to the second.
        most: the highest priority that counts.
    """

    resource: str
    threshold_percent: int
    lower_percent: int
    most: int

    def short(self, pods: Iterable[Pod], allocatable: Mapping[str, str]) -> dict[str, int]:
        """Returns the amount to release of each resource.

        All pods up to the priority count, also those that have finished or may not be evicted.
        """
        requested: dict[str, int] = {}
        for pod in pods:
            if priority_value(pod) <= self.most:
                name, size = class_request(pod, self.resource)
                requested[name] = requested.get(name, 0) + size
        found = {}
        for name, sum_ in requested.items():
            there = amount(name, nanos(allocatable.get(name, "0")))
            if there <= 0:
                found[name] = sum_
            elif sum_ / there > self.threshold_percent / 100:
                found[name] = self._beyond(sum_, there)
        return found

    def _beyond(self, requested: int, there: int) -> int:
        if self.resource == "memory":
            return int((requested / there - self.lower_percent / 100) * there)
        return int(requested - self.lower_percent / 100 * there)


def evict_until_released(
    tasks: Sequence[Task],
    evict: Callable[[Pod, Task], bool],
    terminating: Callable[[Pod], bool],
) -> list[Eviction]:
    """Evicts candidates task by task until each task's release is covered.

    Args:
        evict: (pod, the task it is evicted for) -> it was evicted.
        terminating: the pod was evicted in an earlier cycle and is still there; it counts without being evicted again.
    """
    released: dict[Kind, dict[str, int]] = {kind: {} for kind in Kind}
    counted: set[str] = set()
    evictions: list[Eviction] = []

    def count(each: Candidate) -> None:
        counted.add(each.pod.metadata.uid)
        for kind in Kind:
            most: dict[str, int] = {}  # the largest release of the tasks of this kind, not their sum
            for task in tasks:
                if task.kind is kind:
                    for name, size in task.part(each).items():
                        most[name] = max(size, most.get(name, 0))
            for name, size in most.items():
                released[kind][name] = released[kind].get(name, 0) + size

    for task in tasks:
        for each in task.candidates:
            if all(released[task.kind].get(name, 0) >= size for name, size in task.release.items()):
                break
            if each.pod.metadata.uid in counted:
                continue
            if terminating(each.pod):
                count(each)
                continue
            done = evict(each.pod, task)
            evictions.append(Eviction(each.pod, task.feature, done))
            if done:
                count(each)
    return evictions
