"""The annotation with the batch resources of a pod's containers, for the node's agent.

The kubelet does not pass extended resources on to containers; the agent reads them here.

Source: spec/api.md 2.1, 5.2 step 2; upstream pkg/webhook/pod/mutating/extended_resource_spec.go.
"""

from typing import Any

import msgspec

from shared.admission.pod.pod_json import Raw, annotations_of, app_containers, key_of, resources_of
from shared.admission.rejection import AdmissionRejected
from shared.kube.json_text import read_json
from shared.kube.quantity import BadQuantity, nanos
from shared.kube.quantity_text import notation_of, quantity_text

ANNOTATION = "node.koordinator.sh/extended-resource-spec"
_Spec = dict[str, dict[str, dict[str, dict[str, str | int | float] | None]] | None]
Sizes = dict[str, dict[str, dict[str, int]]]

NAMES = ("kubernetes.io/batch-cpu", "kubernetes.io/batch-memory")


def annotate(pod: dict[str, Any]) -> None:
    """Sets the annotation, in place. An equal annotation stays, and a pod without such resources gets none.

    Raises:
        AdmissionRejected: `extendedResources`, the pod has such an annotation and it cannot be read.
    """
    containers: dict[str, dict[str, dict[str, str]]] = {}
    for container in app_containers(pod):
        found = {kind: _collected(container, kind) for kind in ("limits", "requests")}
        if any(found.values()):
            containers[container["name"]] = {kind: amounts for kind, amounts in found.items() if amounts}
    desired: dict[str, Any] = {"containers": dict(sorted(containers.items()))} if containers else {}
    before = annotations_of(pod).get(ANNOTATION)
    if before is None and not desired:
        return
    if before is not None and _read(pod, before) == _sizes(desired):
        return
    metadata = pod.setdefault("metadata", {})
    if metadata.get("annotations") is None:
        metadata["annotations"] = {}
    metadata["annotations"][ANNOTATION] = msgspec.json.encode(desired).decode()


def _collected(container: Raw, kind: str) -> dict[str, str]:
    amounts = resources_of(container, kind)
    texts = {name: str(amounts[name]) for name in NAMES if name in amounts}
    return {name: quantity_text(nanos(text), notation_of(text)) for name, text in texts.items()}


def _read(pod: Raw, text: str) -> Sizes:
    try:
        return _sizes(read_json(text, _Spec | None) or {})
    except (msgspec.MsgspecError, BadQuantity) as error:
        message = f"pod {key_of(pod)}: annotation {ANNOTATION} cannot be read: {error}; remove it"
        raise AdmissionRejected("extendedResources", message) from error


def _sizes(spec: _Spec) -> Sizes:
    return {
        name: {
            kind: {resource: nanos(str(text)) for resource, text in amounts.items()}
            for kind, amounts in kinds.items()
            if amounts
        }
        for name, kinds in (spec.get("containers") or {}).items()
    }
