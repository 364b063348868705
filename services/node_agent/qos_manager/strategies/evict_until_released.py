"""Evicts the candidates of tasks until the release of each task is covered.

Source: spec/node-agent.md 3.2, 3.3.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from shared.kube.pod import Pod

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
