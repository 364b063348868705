"""The `webhook` vectors' cases of pods, nodes and the ConfigMap: the admission rules asked as the webhook server asks them."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from shared.admission.config_map import check_config_map, check_node
from shared.admission.device_resources import GPU, SHARED, asks_for_gpu
from shared.admission.node_amplification import RAW, amplified
from shared.admission.pod_colocation import RefusedTogether, RequiredLabels, required_labels
from shared.admission.pod_view import annotations_of, app_containers, labels_of, stated
from shared.admission.pods import PodWorld, check, mutated
from shared.admission.refused import Refused
from shared.kube.elastic_quota import declared
from shared.kube.quantity import amount, nanos
from shared.kube.quantity_text import notation_of, quantity_text

Given = Mapping[str, Any]

_AMOUNTS = frozenset({"requests", "limits", "overhead"})


def mutate_pod(given: Given) -> dict[str, Any]:
    """A `mutatePod` case."""
    pod = given["pod"]
    if given["operation"] == "CREATE" and not given.get("subResource"):
        try:
            pod = mutated(_world(given), pod, pod["metadata"]["namespace"], draw=lambda _profile: 0)
        except Refused:
            return {"allowed": False, "code": 500}
    return {"allowed": True, "pod": _recorded(pod)}


def writes_to_an_absent_list(given: Given) -> bool:
    """Whether a `mutatePod` case writes out GPUs of a container that has requests without limits, or limits without requests."""
    world = _world(given)
    if "DisableDeviceResourceSpec" in world.gates or given.get("subResource"):
        return False
    world = structs.replace(world, gates=world.gates | {"DisableDeviceResourceSpec"})
    pod = given["pod"]
    try:
        before = mutated(world, pod, pod["metadata"]["namespace"], draw=lambda _profile: 0)
    except Refused:
        return False
    return any(
        asks_for_gpu(each)
        and bool(stated(each, "requests")) != bool(stated(each, "limits"))
        and (GPU in stated(each, "requests") or SHARED not in stated(each, "requests"))
        for each in app_containers(before)
    )


def validate_pod(given: Given) -> dict[str, Any]:
    """A `validatePod` case."""
    pod = given["pod"]
    try:
        check(_world(given), pod, given.get("oldPod"), pod["metadata"]["namespace"])
    except RefusedTogether as refused:
        return {"allowed": False, "code": 400, "group": refused.code, "codes": refused.codes}
    except Refused as refused:
        return {"allowed": False, "code": 400, "group": refused.code}
    return {"allowed": True}


def mutate_node_status(given: Given) -> dict[str, Any]:
    """A `mutateNodeStatus` case."""
    return {"steps": [_node_step(step) for step in given["steps"]]}


def _world(given: Given) -> PodWorld:
    return PodWorld(
        gates=frozenset(name for name, on in (given.get("gates") or {}).items() if on),
        profiles=given.get("profiles") or (),
        namespaces=_by_name(given.get("namespaces")),
        classes=_by_name(given.get("priorityClasses")),
        quotas={each["metadata"]["name"]: declared(each) for each in given.get("elasticQuotas") or ()},
        quota_profiles=given.get("elasticQuotaProfiles") or (),
        required_labels=required_labels(given.get("enhancedValidatorConfigMap"), RequiredLabels()),
    )


def _by_name(objects: Any) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in objects or ()}


def _recorded(value: Any) -> Any:
    """An object as it is recorded: empty parts left out, quantities in the API's own texts."""
    if isinstance(value, list):
        return [_recorded(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    found = {
        name: _texts(part) if name in _AMOUNTS and isinstance(part, Mapping) else _recorded(part)
        for name, part in value.items()
    }
    return {name: part for name, part in found.items() if part is not None and part not in ({}, [])}


def _texts(amounts: Given) -> dict[str, str]:
    return {name: quantity_text(nanos(str(text)), notation_of(str(text))) for name, text in amounts.items()}


def _node_step(step: Given) -> dict[str, Any]:
    node = step["node"]
    if step["operation"] == "UPDATE":
        try:
            node = amplified(node, step["oldNode"])
        except Refused:
            return {"error": True}
    kept = annotations_of(node).get(RAW)
    raw = None if kept is None else msgspec.json.decode(kept)
    return {
        "error": False,
        "allocatable": _whole((node.get("status") or {}).get("allocatable")),
        "rawAllocatable": None if raw is None else _whole(raw),
    }


def _whole(amounts: Given | None) -> dict[str, int]:
    return {name: amount(name, nanos(str(text))) for name, text in (amounts or {}).items()}


def validate_config_map(given: Given) -> dict[str, Any]:
    """A `validateConfigMap` case."""
    if given["operation"] == "DELETE":
        return {"allowed": True}
    nodes = {name: labels_of(node) for name, node in _by_name(given.get("nodes")).items()}
    names = bool(given.get("nodeStrategyNameNeedCheck"))
    try:
        check_config_map(
            given["configMap"], given.get("oldConfigMap"), nodes, namespace="koordinator-system", names=names
        )
    except Refused as refused:
        return {"allowed": False, "reason": refused.code}
    return {"allowed": True}


def validate_node(given: Given) -> dict[str, Any]:
    """A `validateNode` case; what is created is only told of."""
    if given["operation"] == "UPDATE":
        try:
            check_node(given.get("configMap"), given["node"], given["oldNode"])
        except Refused as refused:
            return {"allowed": False, "reason": refused.code}
    return {"allowed": True}
