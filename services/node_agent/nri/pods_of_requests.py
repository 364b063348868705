"""Pods and containers as requests of a runtime name them, and the answers to what happens to their cgroups. Pure."""

from collections.abc import Mapping
from typing import Any

from services.node_agent.runtime_hooks.container_hooks import Adjustment, ContainerContext
from services.node_agent.runtime_hooks.hook_values import HookValues
from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.kube.meta import Metadata
from shared.kube.pod import Pod, PodStatus
from shared.kube.system_annotations import with_allocations


def requested_pod(pod: Any) -> Pod:
    """Returns a pod as the runtime knows it: names, labels, annotations, and the class that its cgroup shows."""
    return Pod(
        metadata=Metadata(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            labels=dict(pod.labels),
            annotations=dict(pod.annotations),
        ),
        status=PodStatus(qos_class=kube_qos(pod)),
    )


def container_context(pod: Any, subject: Pod, known: Mapping[str, str] | None) -> ContainerContext:
    """Returns the pod of a request.

    Its allocations are the scheduler's where the agent has received the pod, else those that its annotations claim: a
    container may start before that message comes.

    Args:
        subject: the pod as the hooks get it.
        known: its allocations; None where no message had the pod yet.
    """
    annotations = dict(pod.annotations)
    if known is not None:
        annotations = with_allocations(annotations, known) or {}
    return ContainerContext(f"{pod.namespace}/{pod.name}", pod.uid, dict(pod.labels), annotations, "", subject)


def kube_qos(pod: Any) -> str:
    """Returns the Kubernetes class by the pod's cgroup. Source: spec/node-agent.md 2.1."""
    parent = pod.linux.cgroup_parent
    if "besteffort" in parent:
        return "BestEffort"
    return "Burstable" if "burstable" in parent else "Guaranteed"


def adjustment_message(adjustment: Adjustment, container: Any) -> Any:
    """Returns the changes of a container that is about to be created.

    Args:
        container: as the runtime would create it.
    """
    linux: dict[str, Any] = {
        "devices": [
            {
                "path": device.path,
                "type": "c",
                "major": device.major,
                "minor": device.minor,
                "file_mode": {"value": device.mode},
            }
            for device in adjustment.devices
        ]
    }
    if resources := resources_message(adjustment.values, container.linux.resources):
        linux["resources"] = resources
    if adjustment.values.bvt is not None:
        linux.setdefault("resources", {})["unified"] = {"cpu.bvt_warp_ns": str(adjustment.values.bvt)}
    if adjustment.rdt_class:
        linux.setdefault("resources", {})["rdt_class"] = {"value": adjustment.rdt_class}
    if adjustment.values.oom_score is not None:
        linux["oom_score_adj"] = {"value": adjustment.values.oom_score}
    return {
        "env": [{"key": name, "value": text} for name, text in adjustment.env.items()],
        "mounts": [
            {"destination": mount.destination, "type": "bind", "source": mount.source, "options": ["rbind"]}
            for mount in adjustment.mounts
        ],
        "linux": linux,
    }


def resources_message(values: HookValues, before: Any) -> dict[str, Any]:
    """Returns the resources of a container; empty without any.

    Args:
        before: its resources without the hooks. A limit of memory with swap on it keeps to no more than the new one of
            memory: a runtime rejects less.
    """
    cpu: dict[str, Any] = {}
    if values.shares is not None:
        cpu["shares"] = {"value": values.shares}
    if values.quota_us is not None:
        cpu["quota"] = {"value": values.quota_us}
    if values.cpus is not None:
        cpu["cpus"] = values.cpus
    resources: dict[str, Any] = {"cpu": cpu} if cpu else {}
    if values.memory_limit is not None:
        resources["memory"] = {"limit": {"value": values.memory_limit}}
        if before.memory.HasField("swap"):
            resources["memory"]["swap"] = {"value": values.memory_limit}
    return resources


def has_values(resources: Any, values: HookValues) -> bool:
    """Reports whether a container's resources are those of the hooks; without a limit is the same as -1."""
    cpu, memory = resources.cpu, resources.memory
    return all((
        values.shares is None or cpu.shares.value == values.shares,
        values.quota_us is None or (cpu.quota.value or -1) == values.quota_us,
        values.memory_limit is None or (memory.limit.value or -1) == values.memory_limit,
        values.cpus is None or _same_cpus(cpu.cpus, values.cpus),
    ))  # fmt: skip


def has_adjustment(container: Any, adjustment: Adjustment) -> bool:
    """Reports whether a container was created with the variables and devices of an adjustment.

    A runtime does not tell the RDT class of a container, so that one with a class counts as created without.
    """
    if adjustment.rdt_class:
        return False
    env = frozenset(container.env)
    devices = {device.path for device in container.linux.devices}
    return all(f"{name}={text}" in env for name, text in adjustment.env.items()) and all(
        device.path in devices for device in adjustment.devices
    )


def _same_cpus(found: str, desired: str) -> bool:
    try:
        return parse_cpus(found) == parse_cpus(desired)
    except BadCpuList:
        return False
