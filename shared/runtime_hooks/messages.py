"""Messages of Koordinator's gRPC service `runtime.v1alpha1.RuntimeHookService`. Source: spec/node-agent.md 5.3."""

from shared.protobuf_schema import message_classes
from shared.runtime_hooks.stages import AFTER_STOP_POD_SANDBOX, RUN_POD_SANDBOX

SERVICE = "runtime.v1alpha1.RuntimeHookService"
POD_STAGES = (RUN_POD_SANDBOX, AFTER_STOP_POD_SANDBOX)
"""Stages whose messages are those of pods; those of the others are of containers."""

RESOURCES = {
    "cpu_period": (1, "int64"),
    "cpu_quota": (2, "int64"),
    "cpu_shares": (3, "int64"),
    "memory_limit_in_bytes": (4, "int64"),
    "oom_score_adj": (5, "int64"),
    "cpuset_cpus": (6, "string"),
    "cpuset_mems": (7, "string"),
    "hugepage_limits": (8, "repeated HugepageLimit"),
    "unified": (9, "map"),
    "memory_swap_limit_in_bytes": (10, "int64"),
}
"""LinuxContainerResources of this service and of CRI v1: the same bytes."""
HUGEPAGE_LIMIT = {"page_size": (1, "string"), "limit": (2, "uint64")}
POD_METADATA = {
    "name": (1, "string"),
    "uid": (2, "string"),
    "namespace": (3, "string"),
    "attempt": (4, "uint32"),
}
"""PodSandboxMetadata, likewise."""

_MESSAGES = message_classes(
    "runtime.v1alpha1",
    {
        "PodSandboxMetadata": POD_METADATA,
        "ContainerMetadata": {"name": (1, "string"), "attempt": (2, "uint32"), "id": (3, "string")},
        "HugepageLimit": HUGEPAGE_LIMIT,
        "LinuxContainerResources": RESOURCES,
        "PodSandboxHookRequest": {
            "pod_meta": (1, "PodSandboxMetadata"),
            "runtime_handler": (2, "string"),
            "labels": (3, "map"),
            "annotations": (4, "map"),
            "cgroup_parent": (5, "string"),
            "overhead": (6, "LinuxContainerResources"),
            "resources": (7, "LinuxContainerResources"),
        },
        "PodSandboxHookResponse": {
            "labels": (1, "map"),
            "annotations": (2, "map"),
            "cgroup_parent": (3, "string"),
            "resources": (4, "LinuxContainerResources"),
        },
        "ContainerResourceHookRequest": {
            "pod_meta": (1, "PodSandboxMetadata"),
            "container_meta": (2, "ContainerMetadata"),
            "container_annotations": (3, "map"),
            "container_resources": (4, "LinuxContainerResources"),
            "pod_resources": (5, "LinuxContainerResources"),
            "pod_annotations": (6, "map"),
            "pod_labels": (7, "map"),
            "pod_cgroup_parent": (8, "string"),
            "container_envs": (9, "map"),
        },
        "ContainerResourceHookResponse": {
            "container_annotations": (1, "map"),
            "container_resources": (2, "LinuxContainerResources"),
            "pod_cgroup_parent": (3, "string"),
            "container_envs": (4, "map"),
        },
    },
)
LinuxContainerResources = _MESSAGES["LinuxContainerResources"]
PodSandboxHookRequest, PodSandboxHookResponse = _MESSAGES["PodSandboxHookRequest"], _MESSAGES["PodSandboxHookResponse"]
ContainerResourceHookRequest = _MESSAGES["ContainerResourceHookRequest"]
ContainerResourceHookResponse = _MESSAGES["ContainerResourceHookResponse"]


def method_of(stage: str) -> str:
    """Returns the gRPC method of a stage."""
    return f"/{SERVICE}/{stage}Hook"
