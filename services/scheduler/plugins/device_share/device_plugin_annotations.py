"""Annotations by which device plugins of vendors find the devices that a pod was given, under the gate
DevicePluginAdaption.

    bind-timestamp   nanoseconds, on every pod with devices
    gpu-minors       "0,1"
    Huawei           predicate-time, and the chips: "Ascend310P-0,Ascend310P-1" of one model, else "0,1", or
                     "<minor>-<template>" of a shared one
    Cambricon        CAMBRICON_DSMLU_ASSIGHED "false" (as the plugin spells it), and the part of the one card:
                     "<minor>_<core>_<memory in 256 MiB>"
    MetaX            the cards as JSON: [[{"uuid": ..., "compute": <core>, "vRam": <memory in MiB>}]]

A pod that HAMi-core isolates also gets a label with its node: `cycle/plan_events.py`.

Cambricon's and MetaX' plugins serve one pod at a time, under a lock on the node: shared/domain/node_lock.py.

Source: spec/scheduler-workloads.md 3.9; upstream pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go.
"""

from collections.abc import Mapping, Sequence

import msgspec

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.device_usage import AllocatedDevice, Allocation
from services.scheduler.plugins.helper.rejections import Rejection
from shared.domain.device_requests import CORE, MEMORY
from shared.kube.device import DSMLU_PROFILE, GPU, GPU_MINORS, METAX_DEVICES

BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"
PREDICATE_TIME = "predicate-time"
ASCEND_310P, NPU_CORE = "huawei.com/Ascend310P", "huawei.com/npu-core"
DSMLU_ASSIGNED = "CAMBRICON_DSMLU_ASSIGHED"
NAMES = (
    BIND_TIMESTAMP, GPU_MINORS, PREDICATE_TIME, ASCEND_310P, NPU_CORE, DSMLU_ASSIGNED, DSMLU_PROFILE, METAX_DEVICES,
)  # fmt: skip

HUAWEI, CAMBRICON, METAX = "huawei", "cambricon", "metax"
_PAIRED_MODEL = "Ascend-310P3-300I-DUO"
_DSMLU_BYTES, _VRAM_BYTES = 256 << 20, 1 << 20


def device_plugin_annotations(
    allocation: Allocation, vendor: str, model: str, ids: Mapping[tuple[str, int], str], now_ns: int
) -> dict[str, str] | Rejection:
    """Returns the annotations for an allocation, which is not empty; a rejection where the vendor's plugin cannot give it.

    Args:
        vendor, model: of the node's GPUs, by the labels of its Device.
        ids: (type, minor) -> UUID.
        now_ns: when the pod is placed, nanoseconds since the epoch.
    """
    found = {BIND_TIMESTAMP: str(now_ns)}
    gpus = [device for device in allocation if device.type == GPU]
    if not gpus:
        return found
    found[GPU_MINORS] = ",".join(str(gpu.minor) for gpu in gpus)
    if vendor == HUAWEI:
        return found | _huawei(gpus, model, now_ns)
    if vendor not in (CAMBRICON, METAX):
        return found
    if vendor == CAMBRICON and len(gpus) > 1:
        return _refused("it gives a pod one card")
    if (fault := _lacks(gpus, _DSMLU_BYTES if vendor == CAMBRICON else _VRAM_BYTES)) is not None:
        return fault
    if vendor == METAX:
        return found | {METAX_DEVICES: _metax(gpus, ids)}
    amounts = dict(gpus[0].amounts)
    profile = f"{gpus[0].minor}_{amounts[CORE]}_{amounts[MEMORY] // _DSMLU_BYTES}"
    return found | {DSMLU_ASSIGNED: "false", DSMLU_PROFILE: profile}


def _huawei(gpus: Sequence[AllocatedDevice], model: str, now_ns: int) -> dict[str, str]:
    found = {PREDICATE_TIME: str(now_ns)}
    if model == _PAIRED_MODEL:
        found[ASCEND_310P] = ",".join(f"Ascend310P-{gpu.minor}" for gpu in gpus)
    else:
        found[NPU_CORE] = ",".join(f"{gpu.minor}-{gpu.template}" if gpu.template else str(gpu.minor) for gpu in gpus)
    return found


def _metax(gpus: Sequence[AllocatedDevice], ids: Mapping[tuple[str, int], str]) -> str:
    cards = [
        {"uuid": ids.get((GPU, gpu.minor), ""), "compute": amounts[CORE], "vRam": amounts[MEMORY] // _VRAM_BYTES}
        for gpu in gpus
        if (amounts := dict(gpu.amounts))
    ]
    return msgspec.json.encode([cards]).decode()


def _lacks(gpus: Sequence[AllocatedDevice], least_bytes: int) -> Rejection | None:
    for gpu in gpus:
        amounts = dict(gpu.amounts)
        if CORE not in amounts:
            return _refused(f"it needs {CORE}")
        if amounts.get(MEMORY, 0) < least_bytes:
            return _refused(f"it needs at least {least_bytes >> 20} MiB of {MEMORY} a card")
    return None


def _refused(why: str) -> Rejection:
    return Rejection((Reason("DevicePluginRefuses", why),))
