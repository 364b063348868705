"""Messages of CRI v1 with the fields that the proxy reads or writes; others pass through it unchanged."""

from shared.protobuf_schema import message_classes
from shared.runtime_hooks.messages import HUGEPAGE_LIMIT, POD_METADATA, RESOURCES

RUNTIME_SERVICE = "/runtime.v1.RuntimeService/"
CRI_V1 = "/runtime.v1."
"""Methods of CRI v1 begin with it; each of them has one request."""

_CRI = message_classes(
    "runtime.v1",
    {
        "VersionRequest": {"version": (1, "string")},
        "VersionResponse": {"runtime_name": (2, "string"), "runtime_version": (3, "string")},
        "PodSandboxMetadata": POD_METADATA,
        "PodSandboxConfig": {
            "metadata": (1, "PodSandboxMetadata"),
            "labels": (6, "map"),
            "annotations": (7, "map"),
            "linux": (8, "LinuxPodSandboxConfig"),
        },
        "LinuxPodSandboxConfig": {"cgroup_parent": (1, "string")},
        "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig"), "runtime_handler": (2, "string")},
        "RunPodSandboxResponse": {"pod_sandbox_id": (1, "string")},
        "StopPodSandboxRequest": {"pod_sandbox_id": (1, "string")},
        "CreateContainerRequest": {
            "pod_sandbox_id": (1, "string"),
            "config": (2, "ContainerConfig"),
            "sandbox_config": (3, "PodSandboxConfig"),
        },
        "CreateContainerResponse": {"container_id": (1, "string")},
        "ContainerConfig": {
            "metadata": (1, "ContainerMetadata"),
            "envs": (6, "repeated KeyValue"),
            "annotations": (10, "map"),
            "linux": (15, "LinuxContainerConfig"),
        },
        "ContainerMetadata": {"name": (1, "string"), "attempt": (2, "uint32")},
        "KeyValue": {"key": (1, "string"), "value": (2, "bytes")},
        "LinuxContainerConfig": {"resources": (1, "LinuxContainerResources")},
        "LinuxContainerResources": RESOURCES,
        "HugepageLimit": HUGEPAGE_LIMIT,
        "StartContainerRequest": {"container_id": (1, "string")},
        "StopContainerRequest": {"container_id": (1, "string")},
        "RemoveContainerRequest": {"container_id": (1, "string")},
        "UpdateContainerResourcesRequest": {
            "container_id": (1, "string"),
            "linux": (2, "LinuxContainerResources"),
            "annotations": (4, "map"),
        },
        "ListPodSandboxRequest": {},
        "ListPodSandboxResponse": {"items": (1, "repeated PodSandbox")},
        "PodSandbox": {
            "id": (1, "string"),
            "metadata": (2, "PodSandboxMetadata"),
            "labels": (5, "map"),
            "annotations": (6, "map"),
            "runtime_handler": (7, "string"),
        },
        "ListContainersRequest": {},
        "ListContainersResponse": {"containers": (1, "repeated Container")},
        "Container": {
            "id": (1, "string"),
            "pod_sandbox_id": (2, "string"),
            "metadata": (3, "ContainerMetadata"),
            "annotations": (9, "map"),
        },
    },
)
VersionRequest, VersionResponse = _CRI["VersionRequest"], _CRI["VersionResponse"]
RunPodSandboxRequest, RunPodSandboxResponse = _CRI["RunPodSandboxRequest"], _CRI["RunPodSandboxResponse"]
StopPodSandboxRequest = _CRI["StopPodSandboxRequest"]
CreateContainerRequest, CreateContainerResponse = _CRI["CreateContainerRequest"], _CRI["CreateContainerResponse"]
KeyValue = _CRI["KeyValue"]
LinuxContainerResources = _CRI["LinuxContainerResources"]
StartContainerRequest, StopContainerRequest = _CRI["StartContainerRequest"], _CRI["StopContainerRequest"]
RemoveContainerRequest = _CRI["RemoveContainerRequest"]
UpdateContainerResourcesRequest = _CRI["UpdateContainerResourcesRequest"]
ListPodSandboxRequest, ListPodSandboxResponse = _CRI["ListPodSandboxRequest"], _CRI["ListPodSandboxResponse"]
ListContainersRequest, ListContainersResponse = _CRI["ListContainersRequest"], _CRI["ListContainersResponse"]
