"""Resources by names that are no longer used: objects that still have them are read as if they had today's.

A name is replaced where today's is absent; where both are stated, today's counts and the old one stays as it is.

Source: spec/scheduler-core.md 1.2, spec/api.md 2.4; upstream pkg/util/transformer, apis/extension/deprecated.go.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from shared.kube.elastic_quota import RENAMED as BATCH
from shared.kube.node import Node
from shared.kube.pod import Container, PodSpec, Quantities, ResourceRequirements

RENAMED: Mapping[str, str] = {
    **BATCH,
    **{
        f"kubernetes.io/{device}": f"koordinator.sh/{device}"
        for device in ("rdma", "fpga", "gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio")
    },
}
"""Old name -> today's."""

_OLD = frozenset(RENAMED)


def with_todays_names(spec: PodSpec) -> PodSpec:
    """The pod's spec with today's names in its containers and overhead; itself when no old name is there."""
    if (
        all(_is_todays(container) for container in spec.containers)
        and all(_is_todays(container) for container in spec.init_containers)
        and not _has_old(spec.overhead)
    ):
        return spec
    return replace(
        spec,
        containers=tuple(_container(container) for container in spec.containers),
        init_containers=tuple(_container(container) for container in spec.init_containers),
        overhead=_renamed(spec.overhead),
    )


def node_with_todays_names(node: Node) -> Node:
    """The node with today's names in allocatable and capacity; itself when no old name is there."""
    status = node.status
    if not _has_old(status.allocatable) and not _has_old(status.capacity):
        return node
    renamed = replace(status, allocatable=_renamed(status.allocatable), capacity=_renamed(status.capacity))
    return replace(node, status=renamed)


def _has_old(quantities: Quantities | None) -> bool:
    return bool(quantities) and not _OLD.isdisjoint(quantities or ())


def _is_todays(container: Container) -> bool:
    stated = container.resources
    return stated is None or not (_has_old(stated.requests) or _has_old(stated.limits))


def _container(container: Container) -> Container:
    stated = container.resources
    if stated is None or _is_todays(container):
        return container
    resources = ResourceRequirements(requests=_renamed(stated.requests), limits=_renamed(stated.limits))
    return replace(container, resources=resources)


def _renamed(quantities: Quantities | None) -> Quantities | None:
    if quantities is None:
        return None
    return {
        new if (new := RENAMED.get(name, name)) not in quantities else name: size for name, size in quantities.items()
    }
