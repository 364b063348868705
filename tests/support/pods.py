"""Pods for tests: as a client writes them (`written_pod`), as the system keeps them (`kept_pod`), as `cluster` records
them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from shared.events.cluster import PodObserved
from shared.kube.meta import Metadata, OwnerReference
from shared.kube.pod import Container, Pod, PodCondition, PodSpec, PodStatus, ResourceRequirements

Texts = Mapping[str, str]


def written_pod(
    name: str = "web",
    *,
    namespace: str = "",
    labels: Texts | None = None,
    annotations: Texts | None = None,
    requests: Texts | None = None,
    limits: Texts | None = None,
    container: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Returns the JSON object of a pod of one container, `main`, with an image that no node can pull.

    Args:
        requests, limits: the container's; absent without any.
        container: more fields of the container.
        metadata: more fields of the metadata.
        spec: fields of the spec by their JSON names; `containers` replaces the container.
    """
    resources = {kind: dict(sizes) for kind, sizes in (("requests", requests), ("limits", limits)) if sizes}
    described = (("namespace", namespace or None), ("labels", labels), ("annotations", annotations))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            **{field: value for field, value in described if value is not None},
            **(metadata or {}),
        },
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    **({"resources": resources} if resources else {}),
                    **(container or {}),
                }
            ],
            **spec,
        },
    }


def kept_pod(
    name: str = "p",
    *,
    namespace: str = "d",
    uid: str = "",
    labels: Texts | None = None,
    annotations: Texts | None = None,
    owners: Sequence[OwnerReference] = (),
    created: str | None = None,
    deleted: str | None = None,
    requests: Texts | None = None,
    limits: Texts | None = None,
    phase: str = "Pending",
    qos_class: str = "",
    started: str | None = None,
    conditions: Sequence[PodCondition] = (),
    **spec: Any,
) -> Pod:
    """Returns a pod of one container, `c`.

    Args:
        uid: its name without one.
        created, deleted, started: instants as RFC 3339 texts.
        requests, limits: the container's.
        spec: fields of PodSpec; `containers` replaces the container.
    """
    resources = ResourceRequirements(requests=_own(requests), limits=_own(limits))
    return Pod(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            uid=uid or name,
            labels=_own(labels),
            annotations=_own(annotations),
            owner_references=tuple(owners),
            creation_timestamp=created,
            deletion_timestamp=deleted,
        ),
        spec=PodSpec(**{"containers": (Container(name="c", resources=resources),), **spec}),
        status=PodStatus(phase=phase, qos_class=qos_class, start_time=started, conditions=tuple(conditions)),
    )


def observed(pod: Pod) -> PodObserved:
    """Returns the event with which the gateway records the pod."""
    return PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod)


def _own(texts: Texts | None) -> dict[str, str] | None:
    return dict(texts) if texts else None
