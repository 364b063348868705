"""Requests of pods by class, and the amounts by which they exceed a limit in percent of allocatable.

Source: spec/node-agent.md 3.2, 3.3.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority, priority_value, resource_of
from shared.kube.pod import Pod
from shared.kube.quantity import amount, nanos


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
