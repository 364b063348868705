"""Deprecated resource names: objects with them are read as if they had the current names.

A name is replaced where the current one is absent; where both are present, the current one counts and the old one
stays.

Source: spec/scheduler-core.md 1.2, spec/api.md 2.4; upstream pkg/util/transformer, apis/extension/deprecated.go.
"""

from collections.abc import Mapping
from itertools import chain

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
"""Deprecated name -> current name."""

_DEPRECATED = frozenset(RENAMED)


def with_current_names(spec: PodSpec) -> PodSpec:
    """Renames resources in a pod's containers and overhead; returns the spec itself without deprecated names."""
    if _all_have_current_names(spec):
        return spec
    return replace(
        spec,
        containers=tuple(_container(container) for container in spec.containers),
        init_containers=tuple(_container(container) for container in spec.init_containers),
        overhead=_renamed(spec.overhead),
    )


def node_with_current_names(node: Node) -> Node:
    """Renames resources in a node's allocatable and capacity; returns the node itself without deprecated names."""
    status = node.status
    if not _has_deprecated(status.allocatable) and not _has_deprecated(status.capacity):
        return node
    renamed = replace(status, allocatable=_renamed(status.allocatable), capacity=_renamed(status.capacity))
    return replace(node, status=renamed)


def _all_have_current_names(spec: PodSpec) -> bool:
    for container in chain(spec.containers, spec.init_containers) if spec.init_containers else spec.containers:
        resources = container.resources  # not a call for each container: this runs for every pod that is read
        if resources is not None:
            requests, limits = resources.requests, resources.limits
            if (requests and not _DEPRECATED.isdisjoint(requests)) or (limits and not _DEPRECATED.isdisjoint(limits)):
                return False
    return spec.overhead is None or not _has_deprecated(spec.overhead)


def _has_deprecated(quantities: Quantities | None) -> bool:
    return quantities is not None and not _DEPRECATED.isdisjoint(quantities)


def _container(container: Container) -> Container:
    resources = container.resources
    if resources is None:
        return container
    resources = ResourceRequirements(requests=_renamed(resources.requests), limits=_renamed(resources.limits))
    return replace(container, resources=resources)


def _renamed(quantities: Quantities | None) -> Quantities | None:
    if quantities is None:
        return None
    return {
        new if (new := RENAMED.get(name, name)) not in quantities else name: size for name, size in quantities.items()
    }
