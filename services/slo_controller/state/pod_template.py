"""What the pods of one workload have in common: labels, owner, containers. Most pods share theirs with others, so it is kept once."""

from typing import NamedTuple

from shared.kube.pod import Container, Pod
from shared.kube.quantity import BadQuantity, nanos

TEMPLATE_HASH = "pod-template-hash"


class ContainerShape(NamedTuple):
    """A container and what it asks for, in nanos."""

    name: str
    cpu: int
    memory: int


class PodShape(NamedTuple):
    """What pods of one template have in common.

    Attributes:
        labels: by name.
        owner: kind and name of the controlling workload; of a ReplicaSet that a Deployment made, the Deployment.
    """

    labels: tuple[tuple[str, str], ...] = ()
    owner: tuple[str, str] = ("", "")
    containers: tuple[ContainerShape, ...] = ()


def shape_of(pod: Pod) -> PodShape:
    """Read a pod once."""
    labels = pod.metadata.labels or {}
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    kind, name = (owner.kind, owner.name) if owner else ("", "")
    suffix = f"-{labels.get(TEMPLATE_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return PodShape(tuple(sorted(labels.items())), (kind, name), tuple(map(_container, pod.spec.containers)))


def _container(container: Container) -> ContainerShape:
    asked = (container.resources.requests if container.resources else None) or {}
    try:
        return ContainerShape(container.name, nanos(asked.get("cpu", "0")), nanos(asked.get("memory", "0")))
    except BadQuantity:
        return ContainerShape(container.name, 0, 0)
