"""Annotations by which device plugins of vendors find the devices that a pod was given, under the gate
DevicePluginAdaption.

    bind-timestamp   nanoseconds, on every pod with devices
    gpu-minors       "0,1"
    Huawei           predicate-time, and the chips: "Ascend310P-0,Ascend310P-1" of one model, else "0,1", or
                     "<minor>-<template>" of a shared one

The plugins of Cambricon and MetaX also need a lock on the node, and HAMi a label of the pod; these are not written.

Source: spec/scheduler-workloads.md 3.9; upstream pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go.
"""

from services.scheduler.plugins.device_share.device_usage import Allocation
from shared.kube.device import GPU

BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
PREDICATE_TIME = "predicate-time"
ASCEND_310P, NPU_CORE = "huawei.com/Ascend310P", "huawei.com/npu-core"
NAMES = (BIND_TIMESTAMP, GPU_MINORS, PREDICATE_TIME, ASCEND_310P, NPU_CORE)

HUAWEI = "huawei"
_PAIRED_MODEL = "Ascend-310P3-300I-DUO"


def device_plugin_annotations(allocation: Allocation, vendor: str, model: str, now_ns: int) -> dict[str, str]:
    """Returns the annotations for an allocation, which is not empty.

    Args:
        vendor, model: of the node's GPUs, by the labels of its Device.
        now_ns: when the pod is placed, nanoseconds since the epoch.
    """
    found = {BIND_TIMESTAMP: str(now_ns)}
    gpus = [device for device in allocation if device.type == GPU]
    if not gpus:
        return found
    found[GPU_MINORS] = ",".join(str(gpu.minor) for gpu in gpus)
    if vendor == HUAWEI:
        found[PREDICATE_TIME] = str(now_ns)
        if model == _PAIRED_MODEL:
            found[ASCEND_310P] = ",".join(f"Ascend310P-{gpu.minor}" for gpu in gpus)
        else:
            found[NPU_CORE] = ",".join(
                f"{gpu.minor}-{gpu.template}" if gpu.template else str(gpu.minor) for gpu in gpus
            )
    return found
