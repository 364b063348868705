"""Admission of objects by the API server: defaults, priority, QoS class, and validation.

Only fields that a decision of this system depends on are checked; every error names the field. Fields that events do
not keep are ignored.

Source: Kubernetes' pod defaults and validation (k8s.io/kubernetes/pkg/apis/core), the admission plugins Priority and
DefaultTolerationSeconds.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from services.simulator.api.api_errors import forbidden, invalid
from services.simulator.api.resource_kinds import Resource
from shared.domain.qos import kubernetes_qos
from shared.kube.node import Node, NodeCondition
from shared.kube.pod import Container, Pod, PodStatus, Quantities, ResourceRequirements, Toleration
from shared.kube.quantity import BadQuantity, nanos

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

NOT_READY = Toleration(
    key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=300
)
UNREACHABLE = replace(NOT_READY, key="node.kubernetes.io/unreachable")

READY = NodeCondition(type="Ready", status="True", reason="KubeletReady")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_name(resource: Resource, name: str, namespace: str) -> None:
    """Checks that the name is valid, and that a namespace is given exactly if the resource is namespaced.

    Raises:
        ApiError: 422 naming the field.
    """
    if not name:
        raise invalid(resource.kind, name, "metadata.name", "Required value: name or generateName is required")
    if len(name) > 253 or not SUBDOMAIN.fullmatch(name):
        raise invalid(resource.kind, name, "metadata.name", f'Invalid value: "{name}": must be a DNS-1123 subdomain')
    if resource.namespaced and not LABEL.fullmatch(namespace):
        raise invalid(
            resource.kind, name, "metadata.namespace", f'Invalid value: "{namespace}": must be a DNS-1123 label'
        )
    if namespace and not resource.namespaced:
        raise invalid(resource.kind, name, "metadata.namespace", "Forbidden: not allowed on this type")


def admit_pod(pod: Pod, priority_classes: Mapping[str, dict[str, Any]]) -> Pod:
    """Returns the pod as the API server stores it, Pending; its metadata is left to the caller.

    Args:
        pod: as the client wrote it.
        priority_classes: name -> PriorityClass object.

    Raises:
        ApiError: 422 or 403, naming the field.
    """
    spec = pod.spec
    if not spec.containers:
        raise invalid("Pod", pod.metadata.name, "spec.containers", "Required value")
    containers = _containers(pod, "spec.containers", spec.containers)
    init_containers = _containers(pod, "spec.initContainers", spec.init_containers)
    _check_tolerations(pod)
    priority, policy, class_name = _priority(pod, priority_classes)
    tolerations = spec.tolerations
    for standard in (NOT_READY, UNREACHABLE):
        if not any(_covers(given, standard) for given in spec.tolerations):
            tolerations += (standard,)
    admitted = replace(
        pod,
        spec=replace(
            spec,
            containers=containers,
            init_containers=init_containers,
            priority=priority,
            preemption_policy=policy,
            priority_class_name=class_name,
            tolerations=tolerations,
        ),
        status=PodStatus(),
    )
    return replace(admitted, status=PodStatus(phase="Pending", qos_class=kubernetes_qos(admitted)))


def admit_node(node: Node) -> Node:
    """Returns the node as its kubelet registers it: allocatable defaults to capacity, and without conditions it is
    Ready.

    Raises:
        ApiError: 422, naming the field.
    """
    check_node(node)
    status = node.status
    allocatable = status.allocatable if status.allocatable is not None else status.capacity
    return replace(node, status=replace(status, allocatable=allocatable, conditions=status.conditions or (READY,)))


def check_node(node: Node) -> None:
    """Checks that amounts are quantities and that taints have effects.

    Raises:
        ApiError: 422, naming the field.
    """
    name = node.metadata.name
    _check_quantities("Node", name, "status.capacity", node.status.capacity)
    _check_quantities("Node", name, "status.allocatable", node.status.allocatable)
    for index, taint in enumerate(node.spec.taints):
        if taint.effect not in TAINT_EFFECTS:
            raise invalid("Node", name, f"spec.taints[{index}].effect", f'Unsupported value: "{taint.effect}"')


def check_update(old: Pod, new: Pod) -> None:
    """Checks that a pod's spec is unchanged but for images, added tolerations and removed scheduling gates.

    Raises:
        ApiError: 422, as the API server words it.
    """
    gates = tuple(gate for gate in old.spec.scheduling_gates if gate in new.spec.scheduling_gates)
    images = len(old.spec.containers) == len(new.spec.containers)
    allowed = replace(
        old.spec,
        tolerations=new.spec.tolerations if set(old.spec.tolerations) <= set(new.spec.tolerations) else (),
        scheduling_gates=gates,
        containers=tuple(
            replace(container, image=changed.image)
            for container, changed in zip(old.spec.containers, new.spec.containers, strict=True)
        )
        if images
        else (),
    )
    if allowed != new.spec:
        raise invalid(
            "Pod",
            old.metadata.name,
            "spec",
            "Forbidden: pod updates may not change fields other than images, tolerations (added) and scheduling gates (removed)",
        )


def _containers(pod: Pod, field: str, containers: tuple[Container, ...]) -> tuple[Container, ...]:
    names: set[str] = set()
    defaulted = []
    for index, container in enumerate(containers):
        path = f"{field}[{index}]"
        if not LABEL.fullmatch(container.name):
            why = f'Invalid value: "{container.name}": must be a DNS-1123 label' if container.name else "Required value"
            raise invalid("Pod", pod.metadata.name, f"{path}.name", why)
        if container.name in names:
            raise invalid("Pod", pod.metadata.name, f"{path}.name", f'Duplicate value: "{container.name}"')
        if not container.image:
            raise invalid("Pod", pod.metadata.name, f"{path}.image", "Required value")
        names.add(container.name)
        defaulted.append(_with_requests(pod, path, container))
    return tuple(defaulted)


def _with_requests(pod: Pod, path: str, container: Container) -> Container:
    """Checks the amounts. A limit without a request is the request too."""
    resources = container.resources
    if resources is None:
        return container
    _check_quantities("Pod", pod.metadata.name, f"{path}.resources.requests", resources.requests)
    if not resources.limits:
        return container
    _check_quantities("Pod", pod.metadata.name, f"{path}.resources.limits", resources.limits)
    requests = resources.requests or {}
    for name, limit in resources.limits.items():
        request = requests.get(name, limit)
        if nanos(request) > nanos(limit) or (_is_extended(name) and nanos(request) != nanos(limit)):
            relation = "equal to" if _is_extended(name) else "less than or equal to"
            why = f'Invalid value: "{request}": must be {relation} {name} limit of {limit}'
            raise invalid("Pod", pod.metadata.name, f"{path}.resources.requests", why)
    if requests.keys() >= resources.limits.keys():
        return container
    missing = {name: limit for name, limit in resources.limits.items() if name not in requests}
    return replace(container, resources=ResourceRequirements(requests=requests | missing, limits=resources.limits))


def _check_quantities(kind: str, name: str, field: str, quantities: Quantities | None) -> None:
    for resource, text in (quantities or {}).items():
        try:
            amount = nanos(text)
        except BadQuantity as error:
            raise invalid(kind, name, f"{field}[{resource}]", f"Invalid value: {error}") from error
        if amount < 0:
            raise invalid(
                kind, name, f"{field}[{resource}]", f'Invalid value: "{text}": must be greater than or equal to 0'
            )


def _is_extended(resource: str) -> bool:
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def _check_tolerations(pod: Pod) -> None:
    for index, toleration in enumerate(pod.spec.tolerations):
        if toleration.operator not in {"Exists", "Equal", "Lt", "Gt"}:
            why = f'Unsupported value: "{toleration.operator}"'
            raise invalid("Pod", pod.metadata.name, f"spec.tolerations[{index}].operator", why)


def _covers(given: Toleration, standard: Toleration) -> bool:
    return given.key in {"", standard.key} and given.effect in {"", standard.effect}


def _priority(pod: Pod, classes: Mapping[str, dict[str, Any]]) -> tuple[int, str, str]:
    """Returns priority, preemption policy and class name of the pod."""
    name = pod.spec.priority_class_name
    if name:
        chosen = classes.get(name)
        if chosen is None:
            raise forbidden(
                "pods", pod.metadata.name, f"spec.priorityClassName: no PriorityClass with name {name} was found"
            )
    else:
        chosen = _global_default(classes.values())
        name = str(chosen["metadata"]["name"]) if chosen else ""
    value = int(chosen["value"]) if chosen else 0
    if pod.spec.priority is not None and pod.spec.priority != value:
        raise forbidden(
            "pods",
            pod.metadata.name,
            f"spec.priority: the integer value of priority ({pod.spec.priority}) must not be provided in pod spec; "
            f"the PriorityClass gives {value}",
        )
    policy = str(chosen.get("preemptionPolicy") or "PreemptLowerPriority") if chosen else "PreemptLowerPriority"
    return value, pod.spec.preemption_policy or policy, name


def _global_default(classes: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    defaults = [one for one in classes if one.get("globalDefault")]
    return min(defaults, key=lambda one: int(one["value"]), default=None)
