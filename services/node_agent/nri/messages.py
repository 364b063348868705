"""Messages of NRI (package nri.pkg.api.v1alpha1) and of ttrpc, with the fields that the agent reads or writes."""

from shared.protobuf_schema import message_classes

PLUGIN, RUNTIME = "nri.pkg.api.v1alpha1.Plugin", "nri.pkg.api.v1alpha1.Runtime"
RUN_POD_SANDBOX, REMOVE_POD_SANDBOX, START_CONTAINER = 1, 3, 6
"""Events of a StateChange. By the first two, runtimes with NRI before 0.12 report new and removed pods."""
(
    RUN_POD_SANDBOX_EVENT,
    REMOVE_POD_SANDBOX_EVENT,
    CREATE_CONTAINER_EVENT,
    START_CONTAINER_EVENT,
    UPDATE_CONTAINER_EVENT,
) = (
    1 << 0,
    1 << 2,
    1 << 3,
    1 << 5,
    1 << 7,
)
"""Bits of events. A mask with an unknown bit ends the connection, and 0 means all events."""

_NRI = message_classes(
    "nri.pkg.api.v1alpha1",
    {
        "Empty": {},
        "RegisterPluginRequest": {"plugin_name": (1, "string"), "plugin_idx": (2, "string")},
        "ConfigureRequest": {"runtime_name": (2, "string"), "runtime_version": (3, "string")},
        "ConfigureResponse": {"events": (2, "int32")},
        "SynchronizeRequest": {
            "pods": (1, "repeated PodSandbox"),
            "containers": (2, "repeated Container"),
            "more": (3, "bool"),
        },
        "SynchronizeResponse": {"update": (1, "repeated ContainerUpdate"), "more": (2, "bool")},
        "RunPodSandboxRequest": {"pod": (1, "PodSandbox")},
        "RemovePodSandboxRequest": {"pod": (1, "PodSandbox")},
        "StateChangeEvent": {"event": (1, "int32"), "pod": (2, "PodSandbox"), "container": (3, "Container")},
        "UpdateContainerRequest": {
            "pod": (1, "PodSandbox"),
            "container": (2, "Container"),
            "linux_resources": (3, "LinuxResources"),
        },
        "UpdateContainerResponse": {"update": (1, "repeated ContainerUpdate")},
        "ContainerUpdate": {
            "container_id": (1, "string"),
            "linux": (2, "LinuxContainerUpdate"),
            "ignore_failure": (3, "bool"),
        },
        "LinuxContainerUpdate": {"resources": (1, "LinuxResources")},
        "PodSandbox": {
            "id": (1, "string"),
            "name": (2, "string"),
            "uid": (3, "string"),
            "namespace": (4, "string"),
            "labels": (5, "map"),
            "annotations": (6, "map"),
            "linux": (8, "LinuxPodSandbox"),
        },
        "LinuxPodSandbox": {"cgroup_parent": (3, "string")},
        "Container": {
            "id": (1, "string"),
            "pod_sandbox_id": (2, "string"),
            "name": (3, "string"),
            "env": (8, "repeated string"),
            "linux": (11, "LinuxContainer"),
            "started_at": (15, "int64"),
        },
        "LinuxContainer": {"devices": (2, "repeated LinuxDevice"), "resources": (3, "LinuxResources")},
        "LinuxResources": {
            "memory": (1, "LinuxMemory"),
            "cpu": (2, "LinuxCPU"),
            "rdt_class": (5, "OptionalString"),
            "unified": (6, "map"),
        },
        "LinuxMemory": {"limit": (1, "OptionalInt64"), "swap": (3, "OptionalInt64")},
        "LinuxCPU": {
            "shares": (1, "OptionalUInt64"),
            "quota": (2, "OptionalInt64"),
            "cpus": (6, "string"),
        },
        "OptionalInt64": {"value": (1, "int64")},
        "OptionalString": {"value": (1, "string")},
        "OptionalUInt64": {"value": (1, "uint64")},
        "CreateContainerRequest": {"pod": (1, "PodSandbox"), "container": (2, "Container")},
        "CreateContainerResponse": {"adjust": (1, "ContainerAdjustment")},
        "ContainerAdjustment": {
            "mounts": (3, "repeated Mount"),
            "env": (4, "repeated KeyValue"),
            "linux": (6, "LinuxContainerAdjustment"),
        },
        "Mount": {
            "destination": (1, "string"),
            "type": (2, "string"),
            "source": (3, "string"),
            "options": (4, "repeated string"),
        },
        "KeyValue": {"key": (1, "string"), "value": (2, "string")},
        "LinuxContainerAdjustment": {
            "devices": (1, "repeated LinuxDevice"),
            "resources": (2, "LinuxResources"),
            "oom_score_adj": (4, "OptionalInt64"),
        },
        "LinuxDevice": {
            "path": (1, "string"),
            "type": (2, "string"),
            "major": (3, "int64"),
            "minor": (4, "int64"),
            "file_mode": (5, "OptionalFileMode"),
        },
        "OptionalFileMode": {"value": (1, "uint32")},
    },
)
PodSandbox = _NRI["PodSandbox"]
RegisterPluginRequest = _NRI["RegisterPluginRequest"]
ConfigureRequest, ConfigureResponse = _NRI["ConfigureRequest"], _NRI["ConfigureResponse"]
SynchronizeRequest, SynchronizeResponse = _NRI["SynchronizeRequest"], _NRI["SynchronizeResponse"]
RunPodSandboxRequest, RemovePodSandboxRequest = _NRI["RunPodSandboxRequest"], _NRI["RemovePodSandboxRequest"]
StateChangeEvent, Empty = _NRI["StateChangeEvent"], _NRI["Empty"]
CreateContainerRequest, CreateContainerResponse = _NRI["CreateContainerRequest"], _NRI["CreateContainerResponse"]
UpdateContainerRequest, UpdateContainerResponse = _NRI["UpdateContainerRequest"], _NRI["UpdateContainerResponse"]

_TTRPC = message_classes(
    "ttrpc",
    {
        "Request": {
            "service": (1, "string"),
            "method": (2, "string"),
            "payload": (3, "bytes"),
            "timeout_nano": (4, "int64"),
        },
        "Response": {"status": (1, "Status"), "payload": (2, "bytes")},
        "Status": {"code": (1, "int32"), "message": (2, "string")},
    },
)
Request, Response = _TTRPC["Request"], _TTRPC["Response"]
