"""The devices that a pod requests, in their normal forms: those that DeviceShare places, and the webhook accepts.

Source: spec/scheduler-workloads.md 3.2; upstream pkg/scheduler/plugins/deviceshare/utils.go.
"""

from collections.abc import Mapping

from shared.kube.device import FPGA, GPU, RDMA
from shared.kube.quantity import NANO
from shared.kube.quantity_text import Notation, quantity_text

CORE, MEMORY, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"
PERCENT_OF_GPU, SHARED = "koordinator.sh/gpu", "koordinator.sh/gpu.shared"
NPU_CORE, NPU_CPU, NPU_DVPP = "huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp"
RDMA_SHARE, FPGA_SHARE = "koordinator.sh/rdma", "koordinator.sh/fpga"
WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")

TYPE_OF: Mapping[str, str] = {
    **dict.fromkeys((*WHOLE_GPUS, PERCENT_OF_GPU, SHARED, CORE, MEMORY, RATIO, NPU_CORE, NPU_CPU, NPU_DVPP), GPU),
    RDMA_SHARE: RDMA,
    FPGA_SHARE: FPGA,
}
"""Resource -> type of the devices that have it."""

_SHARES = (
    frozenset((SHARED, MEMORY)), frozenset((SHARED, RATIO)),
    frozenset((SHARED, MEMORY, CORE)), frozenset((SHARED, RATIO, CORE)),
)  # fmt: skip
_PERCENTS = (
    frozenset((MEMORY,)), frozenset((RATIO,)), frozenset((CORE, MEMORY)), frozenset((CORE, RATIO)),
    frozenset((NPU_CORE, RATIO)),
)  # fmt: skip
_NPU_SHARES = (
    frozenset((SHARED, NPU_CORE, NPU_CPU, MEMORY)), frozenset((SHARED, NPU_CORE, NPU_CPU, MEMORY, NPU_DVPP)),
)  # fmt: skip


class InvalidDeviceRequest(Exception):
    """A combination of requests that no node's devices can satisfy.

    Attributes:
        code: `InvalidDeviceUnit` or `InvalidDeviceRequests`.
        detail: the resource and its amount, or the resources.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code, detail)
        self.code, self.detail = code, detail


def normal_device_requests(requested: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Returns a pod's requests by type of device; none of amount 0, which count as absent.

    Args:
        requested: resource -> amount of the whole pod, in whole units (bytes for `gpu-memory`).

    Raises:
        InvalidDeviceRequest: parts of more than one device that are no multiple of 100, or names that exclude each
            other.
    """
    split: dict[str, dict[str, int]] = {}
    for name, size in requested.items():
        if size and (type_ := TYPE_OF.get(name)):
            split.setdefault(type_, {})[name] = size
    return {type_: _normal(type_, split[type_]) for type_ in (GPU, RDMA, FPGA) if type_ in split}


def _normal(type_: str, requested: dict[str, int]) -> dict[str, int]:
    names = frozenset(requested)
    for name in (PERCENT_OF_GPU, RDMA_SHARE, FPGA_SHARE):
        if not _is_percent(size := requested.get(name, 0)):
            raise InvalidDeviceRequest("InvalidDeviceUnit", f"{name}: {quantity_text(size * NANO, Notation.DECIMAL)}")
    if type_ != GPU:
        return requested
    if len(names) == 1:
        ((name, size),) = requested.items()
        if name in WHOLE_GPUS:
            return {CORE: 100 * size, RATIO: 100 * size}
        if name == PERCENT_OF_GPU:
            return {CORE: size, RATIO: size}
    if not _is_valid(names, requested):
        raise InvalidDeviceRequest("InvalidDeviceRequests", " ".join(sorted(names)))
    return requested


def _is_valid(names: frozenset[str], requested: Mapping[str, int]) -> bool:
    core, ratio, count = (requested.get(name, 0) for name in (CORE, RATIO, SHARED))
    if names in _PERCENTS:
        return _is_percent(core) and _is_percent(ratio)
    if names in _SHARES:
        return all(size % count == 0 and size // count <= 100 for size in (core, ratio))
    return names in _NPU_SHARES and count <= 1 and requested.get(NPU_DVPP, 0) <= 100


def _is_percent(size: int) -> bool:
    return size <= 100 or size % 100 == 0
