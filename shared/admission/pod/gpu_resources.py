"""GPU resources of containers: what a short form stands for, and which combinations make sense.

Source: spec/api.md 2.4, 5.2 step 4, 5.4 group 5; upstream pkg/webhook/pod/{mutating,validating}.
"""

from collections.abc import Mapping
from typing import Any

from shared.admission.pod.pod_json import Raw, app_containers, key_of, stated, written
from shared.admission.rejection import Refused
from shared.kube.quantity import nanos, value

GPU = "koordinator.sh/gpu"
CORE = "koordinator.sh/gpu-core"
MEMORY = "koordinator.sh/gpu-memory"
RATIO = "koordinator.sh/gpu-memory-ratio"
SHARED = "koordinator.sh/gpu.shared"
NPU_CORE = "huawei.com/npu-core"
NAMES = (GPU, CORE, MEMORY, RATIO, SHARED)


def expand(pod: dict[str, Any]) -> None:
    """Write out what containers ask of GPUs, in place: `gpu: 200` is 200 of cores and of memory, over two devices.

    What is present, and how much, is read from the requests, or from the limits where there are no requests.
    """
    for container in app_containers(pod):
        if asks_for_gpu(container):
            _expand(container)


def asks_for_gpu(container: Raw) -> bool:
    """Whether requests or limits name a GPU resource."""
    return any(name in stated(container, kind) for kind in ("requests", "limits") for name in NAMES)


def _expand(container: dict[str, Any]) -> None:
    asked = dict(stated(container, "requests") or stated(container, "limits"))
    changes: dict[str, str] = {}
    if GPU in asked:
        changes[CORE] = changes[RATIO] = str(asked[GPU])
    if SHARED not in asked:
        changes[SHARED] = str(_devices(asked | changes))
    for kind in ("requests", "limits"):
        amounts = written(container, kind)
        if GPU in asked:
            amounts.pop(GPU, None)
        amounts.update(changes)


def _devices(asked: Mapping[str, Any]) -> int:
    """Over how many devices an amount in percent is spread."""
    percent = _size(asked, RATIO if RATIO in asked else CORE)
    return percent // 100 if percent > 100 and percent % 100 == 0 else 1


def check(pod: Raw) -> None:
    """Whether what the containers ask of devices can be given.

    Raises:
        Refused: `device`.
    """
    for container in app_containers(pod):
        asked = stated(container, "requests")
        if NPU_CORE in asked or not any(name in asked for name in NAMES):
            if problem := _of_counts(asked):
                raise _refused(pod, container, problem)
            continue
        if problem := _of_counts(asked) or _of_shares(asked):
            raise _refused(pod, container, problem)


def _of_counts(asked: Raw) -> str:
    if GPU in asked and SHARED in asked:
        return f"{GPU} and {SHARED} exclude each other; give one of them"
    if GPU in asked:
        percent = _size(asked, GPU)
        if percent == 0:
            return f"{GPU} is 0; leave it out or give at least 1"
        if percent > 100 and percent % 100:
            return f"{GPU} is {percent}; above 100 it must be a multiple of 100"
    if SHARED in asked and _size(asked, SHARED) == 0:
        return f"{SHARED} is 0; leave it out or give at least 1"
    return ""


def _of_shares(asked: Raw) -> str:
    if GPU in asked:
        return ""
    if (_size(asked, MEMORY) > 0) == (_size(asked, RATIO) > 0):
        return f"give exactly one of {MEMORY} and {RATIO}"
    devices = _size(asked, SHARED) if SHARED in asked else 1
    for name in (CORE, RATIO):
        if _size(asked, name) % devices:
            return f"{name} is {_size(asked, name)}, which the {devices} devices of {SHARED} do not divide"
    return ""


def _size(asked: Raw, name: str) -> int:
    return value(nanos(str(asked[name]))) if name in asked else 0


def _refused(pod: Raw, container: Raw, problem: str) -> Refused:
    return Refused("device", f"pod {key_of(pod)}, container {container.get('name')}: {problem}")
