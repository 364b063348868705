"""What cpu and memory evictions share: who may be evicted, in which order, and when enough is released.

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
    """By what a pod's part is counted."""

    REQUEST = "podResourceRequest"
    USED = "podUsed"


class Candidate(NamedTuple):
    """A pod that may be evicted.

    Attributes:
        used: what it uses, in milli-cores or bytes.
    """

    pod: Pod
    used: int = 0


class Task(NamedTuple):
    """What must be released, and whose turn it is in which order.

    Attributes:
        part: what the eviction of any pod releases in the eyes of this task.
    """

    feature: str
    kind: Kind
    release: Amounts
    candidates: Sequence[Candidate]
    part: Callable[[Candidate], Amounts]


class NoTask(Enum):
    """Why a strategy evicts nothing."""

    NONE = "none"
    INVALID = "invalidConfig"


Outcome = Task | NoTask


class Eviction(NamedTuple):
    """A pod that was to be evicted."""

    pod: Pod
    feature: str
    done: bool


def allows(pod: Pod, feature: str) -> bool:
    """Whether the pod lets itself be evicted for that reason; an annotation that is no list of names allows none."""
    text = (pod.metadata.annotations or {}).get(POLICY)
    if text is None:
        return True
    try:
        return feature in read_json(text, list[str])
    except msgspec.MsgspecError:
        return False


def best_effort(pods: Iterable[Pod], feature: str) -> list[Pod]:
    """The pods that a best-effort strategy may evict: those whose label says BE."""
    return [pod for pod in pods if raw_qos(pod) is QoS.BE and allows(pod, feature)]


def by_priority(pods: Iterable[Pod], feature: str, most: int) -> list[Pod]:
    """The pods that a strategy by priority may evict: active ones up to a priority that say so."""
    return [
        pod
        for pod in pods
        if is_active(pod)
        and priority_value(pod) <= most
        and (pod.metadata.labels or {}).get(ENABLED) == "true"
        and allows(pod, feature)
    ]


def order(pod: Pod) -> tuple[int, int, int]:
    """By what pods of a strategy by priority are ordered: eviction priority, priority, sub-priority.

    The least goes first.
    """
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    return (
        _number(annotations.get(EVICTION_PRIORITY), 31),
        priority_value(pod),
        _number(labels.get(SUB_PRIORITY), 63, priority_value(pod)),
    )


def _number(text: str | None, bits: int, otherwise: int = 0) -> int:
    """A number of so many bits; another value when it is none."""
    if text is None or not re.fullmatch(r"[+-]?\d{1,19}", text):
        return otherwise
    found = int(text)
    return found if -(1 << bits) <= found < 1 << bits else otherwise


def request_of(pod: Pod, extended: str) -> int:
    """Returns a pod's request of an extended resource, in whole units: the sum over its containers and sidecars, 0 without one."""
    running = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    texts = [
        requests[extended] for c in running if extended in (requests := (c.resources and c.resources.requests) or {})
    ]
    return sum(amount(extended, nanos(text)) for text in texts)


def class_request(pod: Pod, resource: str) -> tuple[str, int]:
    """Returns the resource that a pod of this class requests in place of `cpu` or `memory`, and its request, 0 without one.

    Mid and batch pods request extended resources. Every other pod counts as a pod on a node does, with init containers and overhead.
    """
    class_ = priority(pod)
    if class_ in {Priority.MID, Priority.BATCH}:
        extended = resource_of(class_, resource)
        return extended, request_of(pod, extended)
    return resource, amount(resource, pod_requests(pod).get(resource, 0))


class Allocatable(NamedTuple):
    """What is requested for beyond what the node has, of `cpu` or `memory` and what stands for it in lower classes.

    Attributes:
        resource: `cpu` or `memory`.
        threshold_percent, lower_percent: above the first something is released, down to the second.
        most: the highest priority that counts.
    """

    resource: str
    threshold_percent: int
    lower_percent: int
    most: int

    def short(self, pods: Iterable[Pod], allocatable: Mapping[str, str]) -> dict[str, int]:
        """What must be released of each resource.

        All known pods up to the priority count, also those that have finished or may not be evicted.
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
        evict: (pod, the task it is evicted for) -> whether it was evicted.
        terminating: whether a pod was evicted in an earlier round and is still there; it counts without being evicted
            again.
    """
    released: dict[Kind, dict[str, int]] = {kind: {} for kind in Kind}
    counted: set[str] = set()
    evictions: list[Eviction] = []

    def count(each: Candidate) -> None:
        counted.add(each.pod.metadata.uid)
        for kind in Kind:
            most: dict[str, int] = {}  # the most that a task of this kind says, not their sum
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
