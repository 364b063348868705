"""Extended resources of a node's healthy devices, as its Device object lists them.

Source: spec/slo-controller.md 6.3, 6.4; upstream
pkg/slo-controller/noderesource/plugins/{gpudeviceresource,rdmadevicereource}.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.kube.quantity import NANO, BadQuantity, bytes_text, milli_text, nanos, value
from shared.kube.quantity_text import Notation, notation_of

GPU, GPU_CORE, GPU_MEMORY = "koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"
GPU_SHARED = "koordinator.sh/gpu.shared"
RDMA = "koordinator.sh/rdma"

MANAGED = (
    GPU,
    GPU_CORE,
    "huawei.com/npu-core",
    "huawei.com/npu-cpu",
    "huawei.com/npu-dvpp",
    GPU_MEMORY,
    "koordinator.sh/gpu-memory-ratio",
    GPU_SHARED,
)
LABELS = ("node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model", "node.koordinator.sh/gpu-driver-version")
_VENDOR = LABELS[0]


class DeviceAmounts(NamedTuple):
    """The resources and labels that a node has by its devices.

    Attributes:
        amounts: resource -> quantity; None: the resource is removed. A managed resource that is absent stays as it is.
        labels: the node's labels that describe its devices.
    """

    amounts: dict[str, str | None]
    labels: dict[str, str]


def device_amounts(device: Mapping[str, Any] | None, *, shared: bool = False) -> DeviceAmounts:
    """Sums the resources of the healthy devices.

    Args:
        device: the node's Device object; None without one.
        shared: count `gpu.shared`, 100 for each GPU (upstream's gate EnableSyncGPUSharedResource).
    """
    if device is None:
        return NO_DEVICES
    listed: list[Mapping[str, Any]] = (device.get("spec") or {}).get("devices") or []
    healthy = [each for each in listed if each.get("health") is True]
    labels = (device.get("metadata") or {}).get("labels") or {}
    gpus = [each for each in healthy if each.get("type") == "gpu"]
    rdma = sum(each.get("type") == "rdma" for each in healthy)
    amounts: dict[str, str | None] = _gpu_amounts(gpus, labels.get(_VENDOR, ""), shared=shared)
    amounts[RDMA] = milli_text(rdma * 100_000) if rdma else None
    return DeviceAmounts(amounts, {name: labels[name] for name in LABELS if name in labels} if gpus else {})


NO_DEVICES = DeviceAmounts(dict.fromkeys((*MANAGED, RDMA)), {})
"""The amounts of a node without a Device object."""


def _gpu_amounts(gpus: list[Mapping[str, Any]], vendor: str, *, shared: bool) -> dict[str, str | None]:
    if not gpus:
        return dict.fromkeys(MANAGED)
    total: dict[str, int] = {}
    binary: set[str] = set()
    for gpu in gpus:
        for name, size in (gpu.get("resources") or {}).items():
            try:
                total[name] = total.get(name, 0) + nanos(str(size))
            except BadQuantity:
                continue
            if notation_of(str(size)) is Notation.BINARY:
                binary.add(name)
    if vendor in ("", "nvidia") and GPU_CORE in total:
        total[GPU] = total[GPU_CORE]
    if shared:
        total[GPU_SHARED] = 100 * len(gpus) * NANO
    return {
        name: bytes_text(value(total[name])) if name in binary else milli_text(value(total[name]) * 1000)
        for name in MANAGED
        if name in total
    }
