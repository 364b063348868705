"""GPU resources of containers: expansion of short forms, and valid combinations.

Source: spec/api.md 2.4, 5.2 step 4, 5.4 group 5; upstream pkg/webhook/pod/{mutating,validating}.
"""

from collections.abc import Mapping
from typing import Any

from shared.admission.pod.pod_json import Raw, app_containers, key_of, pod_of, resources_of, writable_resources
from shared.admission.rejection import AdmissionRejected
from shared.domain.device_requests import (
    CORE,
    MEMORY,
    NPU_CORE,
    PERCENT_OF_GPU,
    RATIO,
    SHARED,
    InvalidDeviceRequest,
    normal_device_requests,
)
from shared.domain.pod_requests import pod_requests, whole
from shared.kube.quantity import nanos, value

NAMES = (PERCENT_OF_GPU, CORE, MEMORY, RATIO, SHARED)


def expand_gpu_requests(pod: dict[str, Any]) -> None:
    """Expands GPU requests of containers, in place: `gpu: 200` is 200 of cores and of memory, over two devices.

    Names and amounts are read from the requests, or from the limits where there are no requests.
    """
    for container in app_containers(pod):
        if requests_gpu(container):
            _expand(container)


def requests_gpu(container: Raw) -> bool:
    """Reports whether requests or limits name a GPU resource."""
    return any(name in resources_of(container, kind) for kind in ("requests", "limits") for name in NAMES)


def _expand(container: dict[str, Any]) -> None:
    requests = dict(resources_of(container, "requests") or resources_of(container, "limits"))
    changes: dict[str, str] = {}
    if PERCENT_OF_GPU in requests:
        changes[CORE] = changes[RATIO] = str(requests[PERCENT_OF_GPU])
    if SHARED not in requests:
        changes[SHARED] = str(_devices(requests | changes))
    for kind in ("requests", "limits"):
        amounts = writable_resources(container, kind)
        if PERCENT_OF_GPU in requests:
            amounts.pop(PERCENT_OF_GPU, None)
        amounts.update(changes)


def _devices(requests: Mapping[str, Any]) -> int:
    """Returns the number of devices that an amount in percent is spread over."""
    percent = _size(requests, RATIO if RATIO in requests else CORE)
    return percent // 100 if percent > 100 and percent % 100 == 0 else 1


def check(pod: Raw) -> None:
    """Checks that devices can satisfy the requests of the containers.

    Raises:
        AdmissionRejected: `device`.
    """
    for container in app_containers(pod):
        requests = resources_of(container, "requests")
        if NPU_CORE in requests or not any(name in requests for name in NAMES):
            if problem := _count_problem(requests):
                raise _refused(pod, container, problem)
            continue
        if problem := _count_problem(requests) or _share_problem(requests):
            raise _refused(pod, container, problem)


def check_placeable(pod: Raw) -> None:
    """Checks that the scheduler's plugin DeviceShare knows the requests of the pod as a whole.

    Raises:
        AdmissionRejected: `device`.
    """
    try:
        normal_device_requests(whole(pod_requests(pod_of(pod))))
    except InvalidDeviceRequest as error:
        raise AdmissionRejected(
            "device",
            f"pod {key_of(pod)}: no node can satisfy {error.detail} ({error.code}); the combinations that the scheduler "
            "knows are in docs/devices.md, Requests",
        ) from error


def _count_problem(requests: Raw) -> str:
    if PERCENT_OF_GPU in requests and SHARED in requests:
        return f"{PERCENT_OF_GPU} and {SHARED} exclude each other; give one of them"
    if PERCENT_OF_GPU in requests:
        percent = _size(requests, PERCENT_OF_GPU)
        if percent == 0:
            return f"{PERCENT_OF_GPU} is 0; leave it out or give at least 1"
        if percent > 100 and percent % 100:
            return f"{PERCENT_OF_GPU} is {percent}; above 100 it must be a multiple of 100"
    if SHARED in requests and _size(requests, SHARED) == 0:
        return f"{SHARED} is 0; leave it out or give at least 1"
    return ""


def _share_problem(requests: Raw) -> str:
    if PERCENT_OF_GPU in requests:
        return ""
    if (_size(requests, MEMORY) > 0) == (_size(requests, RATIO) > 0):
        return f"give exactly one of {MEMORY} and {RATIO}"
    devices = _size(requests, SHARED) if SHARED in requests else 1
    for name in (CORE, RATIO):
        if _size(requests, name) % devices:
            return f"{name} is {_size(requests, name)}, which the {devices} devices of {SHARED} do not divide"
    return ""


def _size(requests: Raw, name: str) -> int:
    return value(nanos(str(requests[name]))) if name in requests else 0


def _refused(pod: Raw, container: Raw, problem: str) -> AdmissionRejected:
    return AdmissionRejected("device", f"pod {key_of(pod)}, container {container.get('name')}: {problem}")
