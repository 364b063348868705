"""Fields that the simulated cluster drops from objects, so that it stores what the gateway's events keep of real ones.

Types do most of it: a field that a type does not declare is not decoded.
"""

from typing import Any

from msgspec.structs import replace

from services.simulator.state import Object
from shared.kube.kept_annotations import keeps
from shared.kube.kept_pod_status import kept_status
from shared.kube.meta import Metadata
from shared.kube.pod import Container, Pod, PodSpec

REMOVED_FIELDS = ("managedFields", "resourceVersion", "generation", "generateName", "selfLink")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def without_unused_fields(whole: Object) -> Object:
    """Removes foreign annotations, volumes without a claim, ports that are not host ports, and container statuses."""
    if isinstance(whole, dict):
        return _plain(whole)
    if isinstance(whole, Pod):
        spec = _spec(whole.spec) if _has_more(whole.spec) else whole.spec
        status = kept_status(whole.spec, whole.status)
        if spec is not whole.spec or status is not whole.status:
            whole = replace(whole, spec=spec, status=status)
    annotations = whole.metadata.annotations
    if annotations is None or all(map(keeps, annotations)):
        return whole
    return replace(whole, metadata=_metadata(whole.metadata, annotations))


def _metadata(metadata: Metadata, annotations: dict[str, str]) -> Metadata:
    kept = {name: value for name, value in annotations.items() if keeps(name)}
    return replace(metadata, annotations=kept or None)


def _has_more(spec: PodSpec) -> bool:
    containers = (*spec.containers, *spec.init_containers)
    return bool(spec.volumes) or any(container.ports for container in containers)


def _spec(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        volumes=tuple(volume for volume in spec.volumes if volume.persistent_volume_claim),
        local_storage=spec.local_storage or any(volume.is_local() for volume in spec.volumes),
        containers=tuple(map(_container, spec.containers)),
        init_containers=tuple(map(_container, spec.init_containers)),
    )


def _container(container: Container) -> Container:
    return replace(container, ports=tuple(port for port in container.ports if port.host_port))


def _plain(body: dict[str, Any]) -> dict[str, Any]:
    given = body.get("metadata")
    if not isinstance(given, dict):
        return body
    metadata = {name: value for name, value in given.items() if name not in REMOVED_FIELDS}
    annotations = {name: value for name, value in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    metadata.pop("annotations", None)
    return body | {"metadata": metadata | ({"annotations": annotations} if annotations else {})}
