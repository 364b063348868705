"""Messages of NRI (package nri.pkg.api.v1alpha1) and of ttrpc, with the fields that the agent reads or writes."""

from shared.protobuf_schema import message_classes

PLUGIN, RUNTIME = "nri.pkg.api.v1alpha1.Plugin", "nri.pkg.api.v1alpha1.Runtime"
CREATE_CONTAINER_EVENT = 1 << 3
"""The bit of the event CREATE_CONTAINER. A mask with an unknown bit ends the connection, and 0 means all events."""

_NRI = message_classes(
    "nri.pkg.api.v1alpha1",
    {
        "Empty": {},
        "RegisterPluginRequest": {"plugin_name": (1, "string"), "plugin_idx": (2, "string")},
        "ConfigureRequest": {"runtime_name": (2, "string"), "runtime_version": (3, "string")},
        "ConfigureResponse": {"events": (2, "int32")},
        "SynchronizeRequest": {"more": (3, "bool")},
        "SynchronizeResponse": {"more": (2, "bool")},
        "PodSandbox": {
            "name": (2, "string"),
            "uid": (3, "string"),
            "namespace": (4, "string"),
            "labels": (5, "map"),
            "annotations": (6, "map"),
        },
        "Container": {"id": (1, "string"), "name": (3, "string")},
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
        "LinuxContainerAdjustment": {"devices": (1, "repeated LinuxDevice")},
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
RegisterPluginRequest = _NRI["RegisterPluginRequest"]
ConfigureRequest, ConfigureResponse = _NRI["ConfigureRequest"], _NRI["ConfigureResponse"]
SynchronizeRequest, SynchronizeResponse = _NRI["SynchronizeRequest"], _NRI["SynchronizeResponse"]
CreateContainerRequest, CreateContainerResponse = _NRI["CreateContainerRequest"], _NRI["CreateContainerResponse"]

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
