"""Pod templates: labels, owner and containers that the pods of one workload have in common, so that they are stored once."""

from typing import NamedTuple

from shared.kube.pod import Container, Pod
from shared.kube.quantity import BadQuantity, nanos

TEMPLATE_HASH = "pod-template-hash"


class ContainerTemplate(NamedTuple):
    """A container and its requests, in nanos."""

    name: str
    cpu: int
    memory: int


class PodTemplate(NamedTuple):
    """The part of a pod that other pods of its workload share.

    Attributes:
        labels: by name.
        owner: kind and name of the controlling workload; of a ReplicaSet that a Deployment made, the Deployment.
    """

    labels: tuple[tuple[str, str], ...] = ()
    owner: tuple[str, str] = ("", "")
    containers: tuple[ContainerTemplate, ...] = ()


def pod_template(pod: Pod) -> PodTemplate:
    """Returns the template of a pod."""
    labels = pod.metadata.labels or {}
    owner = pod.metadata.controller
    kind, name = (owner.kind, owner.name) if owner else ("", "")
    suffix = f"-{labels.get(TEMPLATE_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return PodTemplate(tuple(sorted(labels.items())), (kind, name), tuple(map(_container, pod.spec.containers)))


def _container(container: Container) -> ContainerTemplate:
    requests = (container.resources.requests if container.resources else None) or {}
    try:
        return ContainerTemplate(container.name, nanos(requests.get("cpu", "0")), nanos(requests.get("memory", "0")))
    except BadQuantity:
        return ContainerTemplate(container.name, 0, 0)
