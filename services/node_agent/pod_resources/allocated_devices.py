"""Adds the devices that our scheduler allocated to the kubelet's answers about its pods. Pure.

Source: spec/node-agent.md 7.3; the kubelet's API v1 of podresources.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shared.kube.allocated_devices import AnnotatedDevice, read_allocated_devices
from shared.kube.device import GPU, RDMA
from shared.protobuf_schema import message_classes

LIST = "/v1.PodResourcesLister/List"
RESOURCES = {GPU: "nvidia.com/gpu", RDMA: "koordinator.sh/rdma"}
"""Type of a device -> the resource under which its users look for it."""

_V1 = message_classes(
    "v1",
    {
        "ListPodResourcesResponse": {"pod_resources": (1, "repeated PodResources")},
        "PodResources": {
            "name": (1, "string"),
            "namespace": (2, "string"),
            "containers": (3, "repeated ContainerResources"),
        },
        "ContainerResources": {"name": (1, "string"), "devices": (2, "repeated ContainerDevices")},
        "ContainerDevices": {"resource_name": (1, "string"), "device_ids": (2, "repeated string")},
    },
)
ListPodResourcesResponse = _V1["ListPodResourcesResponse"]


def with_allocated_devices(answer: bytes, annotations: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """Returns the kubelet's answer to List with our devices, and a sentence for each annotation that cannot be read.

    The first container of a pod gets all of its devices, since the allocation is one of pods: an entry for each
    resource, by name, after those of the kubelet. Fields that are not declared here pass through.

    Args:
        annotations: `namespace/name` of a pod -> its annotation device-allocated.

    Raises:
        google.protobuf.message.DecodeError: the answer is no such message.
    """
    found = ListPodResourcesResponse.FromString(answer)
    faults = []
    for pod in found.pod_resources:
        key = f"{pod.namespace}/{pod.name}"
        if key not in annotations or not pod.containers:
            continue
        try:
            devices = read_allocated_devices(annotations[key])
        except msgspec.MsgspecError as error:
            faults.append(f"the devices of pod {key} cannot be read: {error}")
            continue
        pod.containers[0].devices.extend(_entries(devices))
    serialized: bytes = found.SerializeToString()
    return serialized, faults


def _entries(devices: Mapping[str, tuple[AnnotatedDevice, ...]]) -> Iterator[Any]:
    for resource, type_ in sorted((resource, type_) for type_, resource in RESOURCES.items()):
        ids = [device_id for device in devices.get(type_, ()) for device_id in _ids(device)]
        if ids:
            yield _V1["ContainerDevices"](resource_name=resource, device_ids=ids)


def _ids(device: AnnotatedDevice) -> list[str]:
    """Returns the PCI addresses of virtual functions, else the device's id."""
    functions = [function.bus for function in device.functions if function.bus]
    return functions or ([device.uuid] if device.uuid else [])
