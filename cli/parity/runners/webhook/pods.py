"""Runs the pod webhooks: ops `mutatePod` and `validatePod`."""

from collections.abc import Mapping
from typing import Any

from cli.parity.runners.webhook.canonical_quantities import canonical
from cli.parity.runners.webhook.recorded_handlers import Given, handlers_of, request_of
from services.gateway.webhooks.admission_handlers import APPLIED_PROFILES
from shared.admission.pod.gpu_resources import requests_gpu
from shared.admission.pod.pod_json import app_containers, resources_of
from shared.admission.pod.qos_validation import MultipleRejections
from shared.admission.rejection import AdmissionRejected
from shared.domain.device_requests import PERCENT_OF_GPU, SHARED

_AMOUNTS = frozenset({"requests", "limits", "overhead"})


def mutate_pod(given: Given) -> dict[str, Any]:
    """Runs op `mutatePod`: the pod as it is stored, without the annotation that names its profiles, which is our own."""
    pod = given["pod"]
    try:
        after = handlers_of(given).mutate_pod(request_of(given, pod)) or pod
    except AdmissionRejected:
        return {"allowed": False, "code": 500}
    (after["metadata"].get("annotations") or {}).pop(APPLIED_PROFILES, None)
    return {"allowed": True, "pod": _recorded(after)}


def writes_to_an_absent_list(given: Given) -> bool:
    """Reports whether op `mutatePod` writes GPUs of a container that has requests without limits, or limits without
    requests.
    """
    request = request_of(given, given["pod"])
    if "DisableDeviceResourceSpec" in handlers_of(given).settings.gates:
        return False
    try:
        before = handlers_of(given, without=("DisableDeviceResourceSpec",)).mutate_pod(request)
    except AdmissionRejected:
        return False
    return before is not None and any(
        requests_gpu(each)
        and bool(resources_of(each, "requests")) != bool(resources_of(each, "limits"))
        and (PERCENT_OF_GPU in resources_of(each, "requests") or SHARED not in resources_of(each, "requests"))
        for each in app_containers(before)
    )


def validate_pod(given: Given) -> dict[str, Any]:
    """Runs op `validatePod`: the group of rules that refuses the pod, and of `colocation` all kinds of errors."""
    try:
        handlers_of(given).validate_pod(request_of(given, given["pod"], given.get("oldPod")))
    except MultipleRejections as refused:
        return {"allowed": False, "code": 400, "group": refused.code, "codes": refused.codes}
    except AdmissionRejected as refused:
        return {"allowed": False, "code": 400, "group": refused.code}
    return {"allowed": True}


def _recorded(value: Any) -> Any:
    """Returns an object as it is recorded: empty parts left out, quantities in canonical text."""
    if isinstance(value, list):
        return [_recorded(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    found = {
        name: {resource: canonical(str(text)) for resource, text in part.items()}
        if name in _AMOUNTS and isinstance(part, Mapping)
        else _recorded(part)
        for name, part in value.items()
    }
    return {name: part for name, part in found.items() if part is not None and part not in ({}, [])}
