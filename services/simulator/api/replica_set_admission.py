"""ReplicaSets as an API server admits them, and the pods that their template describes.

Source: Kubernetes' validation of apps/v1 (k8s.io/kubernetes/pkg/apis/apps/validation).
"""

from collections.abc import Mapping
from typing import Any

from services.simulator.api.api_errors import invalid
from services.simulator.api.object_admission import admit_pod
from services.simulator.api.object_conversion import name_of, typed
from services.simulator.api.resource_kinds import PODS, REPLICA_SETS
from shared.kube.pod import Pod

MOST_REPLICAS = 1_000
"""Replicas that one ReplicaSet may have here: a step creates all that are missing."""


def replicas_of(body: Mapping[str, Any]) -> int:
    """Returns the desired number of pods; 1 where none is given."""
    found = _part(body, "spec").get("replicas")
    return 1 if found is None else int(found)


def check_replica_set(body: Mapping[str, Any], priority_classes: Mapping[str, dict[str, Any]]) -> None:
    """Checks the replicas, that the selector selects the template, and that a pod of the template would be admitted.

    Raises:
        ApiError: 400, 403 or 422, naming the field.
    """
    name, _ = name_of(dict(body))
    spec = _part(body, "spec")
    replicas = spec.get("replicas")
    if replicas is not None and (type(replicas) is not int or not 0 <= replicas <= MOST_REPLICAS):
        why = f"Invalid value: {replicas!r}: must be a whole number from 0 to {MOST_REPLICAS}"
        raise invalid(REPLICA_SETS.kind, name, "spec.replicas", why)
    selected = _part(_part(spec, "selector"), "matchLabels")
    labels = _part(_part(_part(spec, "template"), "metadata"), "labels")
    if not selected or not selected.items() <= labels.items():
        why = "Required value: spec.selector.matchLabels, and the labels of the template must have them"
        raise invalid(REPLICA_SETS.kind, name, "spec.selector", why)
    admit_pod(new_pod(body, f"{name}-0"), priority_classes)


def new_pod(body: Mapping[str, Any], name: str) -> Pod:
    """Returns a pod of the template, controlled by the ReplicaSet, to be created.

    Raises:
        ApiError: 400: the template cannot be read.
    """
    metadata, template = _part(body, "metadata"), _part(_part(body, "spec"), "template")
    given = _part(template, "metadata")
    controller = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "name": metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "controller": True,
    }
    kept = {field: given[field] for field in ("labels", "annotations") if field in given}
    own = {"name": name, "namespace": metadata.get("namespace", ""), "ownerReferences": [controller]}
    pod = typed(PODS, {"metadata": kept | own, "spec": template.get("spec") or {}})
    assert isinstance(pod, Pod)
    return pod


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}
