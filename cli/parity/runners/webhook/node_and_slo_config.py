"""Runs the webhooks of nodes and of the SLO controller's ConfigMap."""

from typing import Any

import msgspec

from cli.parity.runners.webhook.recorded_handlers import Given, handlers_of, request_of
from shared.admission.pod.pod_json import annotations_of
from shared.admission.rejection import AdmissionRejected
from shared.kube.node import RAW_ALLOCATABLE
from shared.kube.quantity import amount, nanos


def mutate_node_status(given: Given) -> dict[str, Any]:
    """Runs op `mutateNodeStatus`: amounts in milli-cores and whole units after each step, None for an absent
    annotation.
    """
    return {"steps": [_node_step(step) for step in given["steps"]]}


def _node_step(step: Given) -> dict[str, Any]:
    node = step["node"]
    try:
        after = handlers_of(step).mutate_node_status(request_of(step, node, step.get("oldNode"))) or node
    except AdmissionRejected:
        return {"error": True}
    kept = annotations_of(after).get(RAW_ALLOCATABLE)
    raw = None if kept is None else msgspec.json.decode(kept)
    return {
        "error": False,
        "allocatable": _whole((after.get("status") or {}).get("allocatable")),
        "rawAllocatable": None if raw is None else _whole(raw),
    }


def _whole(amounts: Given | None) -> dict[str, int]:
    return {name: amount(name, nanos(str(text))) for name, text in (amounts or {}).items()}


def validate_config_map(given: Given) -> dict[str, Any]:
    """Runs op `validateConfigMap`: the reason of the first refusal."""
    try:
        handlers_of(given).validate_config_map(request_of(given, given.get("configMap"), given.get("oldConfigMap")))
    except AdmissionRejected as refused:
        return {"allowed": False, "reason": refused.code}
    return {"allowed": True}


def validate_node(given: Given) -> dict[str, Any]:
    """Runs op `validateNode`: the reason of the refusal."""
    request = request_of(given, given["node"], given.get("oldNode"))
    try:
        handlers_of(given, config_map=given.get("configMap")).validate_node(request)
    except AdmissionRejected as refused:
        return {"allowed": False, "reason": refused.code}
    return {"allowed": True}
