"""Requests and limits of a pod as a whole, summed over its containers, in exact nanos (10^-9 of the unit).

Ordinary init containers run one after the other before the containers, so they count with their maximum; an init
container with `restartPolicy: Always` (a sidecar) keeps running and counts with everything started after it.

Source: spec/scheduler-core.md 2.1; Kubernetes' pod resource rules.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from shared.kube.pod import Container, ContainerStatus, Pod, Quantities
from shared.kube.quantity import NANO, amount, nanos

Nanos = dict[str, int]
"""Resource name -> amount in nanos. A name without a request is absent; an explicit zero is kept."""

DEFAULT_REQUESTS: Mapping[str, int] = {"cpu": NANO // 10, "memory": (200 << 20) * NANO}
"""Requests of a container without cpu or memory requests in the scoring of nodes: 100m and 200Mi."""

_POD_LEVEL = ("cpu", "memory")


RESIZE_PENDING = "PodResizePending"
"""Condition of a pod whose resize the node has not granted; reason INFEASIBLE when it never will."""

INFEASIBLE = "Infeasible"


class PodAmounts(NamedTuple):
    """All four sums of one pod; equal sums may share one object."""

    requests: Nanos
    scored: Nanos
    held: Nanos
    limits: Nanos


def read_pod_amounts(pod: Pod) -> PodAmounts:
    """Computes `pod_requests`, `scored_requests`, `held_requests` and `pod_limits`, in one pass for most pods.

    Raises:
        BadQuantity: a quantity is invalid.
    """
    spec = pod.spec
    if spec.init_containers or spec.overhead or spec.resources or _running(pod) is not _NOT_RESIZED:
        return PodAmounts(pod_requests(pod), scored_requests(pod), held_requests(pod), pod_limits(pod))
    requests, limits = _of_containers(spec.containers, {}), _sum(map(_limits, spec.containers))
    complete = all(
        container.resources is not None
        and container.resources.requests is not None
        and all(name in container.resources.requests for name in DEFAULT_REQUESTS)
        for container in spec.containers
    )
    scored = requests if complete else _of_containers(spec.containers, DEFAULT_REQUESTS)
    return PodAmounts(requests, scored, scored, limits)


def pod_requests(pod: Pod) -> Nanos:
    """PodRequests: containers, sidecars, init containers, replaced by pod-level requests, plus overhead.

    A container that is being resized counts with the maximum of its spec's requests, its actual resources and its
    allocated resources; without the spec's requests when the node will never grant the resize.
    """
    return _requests(pod, pod_level=True, missing={})


def pod_limits(pod: Pod) -> Nanos:
    """PodLimits: the same over limits; overhead is added only where there is a limit already."""
    total = _aggregated(pod, _limits)
    if pod.spec.resources is not None:
        total.update(_read(pod.spec.resources.limits, _is_pod_level))
    for name, extra in _read(pod.spec.overhead).items():
        if name in total:
            total[name] += extra
    return total


def scored_requests(pod: Pod) -> Nanos:
    """Requests of a pending pod for scoring: each container without cpu or memory requests counts DEFAULT_REQUESTS.

    Pod-level requests are ignored here, as they are in upstream's scoring. An explicit zero stays zero.
    """
    return _requests(pod, pod_level=False, missing=DEFAULT_REQUESTS)


def held_requests(pod: Pod) -> Nanos:
    """Requests of a running pod for the scoring of its node (NodeInfo.NonZeroRequested).

    With pod-level requests, a default applies only to resources that the pod as a whole does not request.
    """
    if not _has_pod_level_requests(pod):
        return _requests(pod, pod_level=True, missing=DEFAULT_REQUESTS)
    requests = pod_requests(pod)
    missing = {name: default for name, default in DEFAULT_REQUESTS.items() if name not in requests}
    return _requests(pod, pod_level=True, missing=missing) if missing else requests


def whole(amounts: Nanos) -> dict[str, int]:
    """Converts to this system's units: cpu in milli-cores, everything else in whole units, each rounded up once."""
    return {name: amount(name, size) for name, size in amounts.items()}


def _requests(pod: Pod, *, pod_level: bool, missing: Mapping[str, int]) -> Nanos:
    running = _running(pod)
    if running is _NOT_RESIZED and not pod.spec.init_containers:  # most pods that wait
        total = _of_containers(pod.spec.containers, missing)
    else:
        total = _aggregated(pod, lambda container: {**missing, **_requested(container, running)})
    if pod_level and pod.spec.resources is not None:
        total.update(_read(pod.spec.resources.requests, _is_pod_level))
    for name, extra in _read(pod.spec.overhead).items():
        total[name] = total.get(name, 0) + extra
    return total


def _of_containers(containers: Iterable[Container], missing: Mapping[str, int]) -> Nanos:
    total: Nanos = {}
    for container in containers:
        requests = (container.resources.requests if container.resources else None) or {}
        for name, text in requests.items():
            total[name] = total.get(name, 0) + nanos(text)
        for name, default in missing.items():
            if name not in requests:
                total[name] = total.get(name, 0) + default
    return total


def _aggregated(pod: Pod, amounts_of: Callable[[Container], Nanos]) -> Nanos:
    """Computes max( containers + sidecars, per ordinary init container: it + the sidecars declared before it )."""
    total = _sum(amounts_of(container) for container in pod.spec.containers)
    if not pod.spec.init_containers:
        return total
    sidecars: Nanos = {}
    peak: Nanos = {}
    for container in pod.spec.init_containers:
        own = amounts_of(container)
        if container.restart_policy == "Always":
            total, sidecars = _sum((total, own)), _sum((sidecars, own))
            started = sidecars
        else:
            started = _sum((own, sidecars))
        peak = _max(peak, started)
    return _max(total, peak)


def _sum(parts: Iterable[Nanos]) -> Nanos:
    total: Nanos = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def _max(one: Nanos, other: Nanos) -> Nanos:
    return one | {name: max(one.get(name, size), size) for name, size in other.items()}


def _requested(container: Container, running: "_Running") -> Nanos:
    requests = _read(container.resources.requests) if container.resources else {}
    status = running.statuses.get(container.name)
    if status is None or status.resources is None:
        return requests
    has = _max(_read(status.resources.requests), _read(status.allocated_resources))
    return has if running.infeasible else _max(requests, has)


class _Running(NamedTuple):
    """The actual and allocated resources of a pod's containers, by container name."""

    statuses: Mapping[str, ContainerStatus]
    infeasible: bool


_NOT_RESIZED = _Running({}, infeasible=False)


def _running(pod: Pod) -> _Running:
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return _NOT_RESIZED
    return _Running(
        {each.name: each for each in (*status.init_container_statuses, *status.container_statuses)},
        infeasible=any(c.type == RESIZE_PENDING and c.reason == INFEASIBLE for c in status.conditions),
    )


def _limits(container: Container) -> Nanos:
    return _read(container.resources.limits) if container.resources else {}


def _read(quantities: Quantities | None, keep: Callable[[str], bool] | None = None) -> Nanos:
    if not quantities:
        return {}
    return {name: nanos(text) for name, text in quantities.items() if keep is None or keep(name)}


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _has_pod_level_requests(pod: Pod) -> bool:
    resources = pod.spec.resources
    return resources is not None and any(_is_pod_level(name) for name in resources.requests or ())
