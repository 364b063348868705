"""Pods in operating mode `Reservation`: running pods whose capacity other pods take over, as from a Reservation.

Source: spec/scheduler-workloads.md 1.12; upstream apis/extension/operating_pod.go.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.domain.pod_requests import pod_requests
from shared.domain.reservation import ALIGNED, AVAILABLE, Owner, amounts_text
from shared.kube.json_text import read_json
from shared.kube.pod import Pod
from shared.kube.quantity import BadQuantity

OPERATING_MODE = "scheduling.koordinator.sh/operating-mode"
"""Label of such a pod, with the value `Reservation`."""

OWNERS = "scheduling.koordinator.sh/reservation-owners"
CURRENT_OWNER = "scheduling.koordinator.sh/reservation-current-owner"
"""Annotations: the owners as in the spec of a Reservation, and the pod that uses it."""


def is_operating(labels: Mapping[str, str] | None) -> bool:
    """Returns True for a pod that acts as a Reservation once it runs."""
    return bool(labels) and (labels or {}).get(OPERATING_MODE) == "Reservation"


def reservation_of(pod: Pod) -> dict[str, Any] | None:
    """Returns the pod as an available Reservation of one pod; None while it is not running and ready, or asks for
    nothing that can be read.

    Its policy is Aligned; owners that cannot be read name no pod.
    """
    metadata = pod.metadata
    ready = pod.condition("Ready")
    if not is_operating(metadata.labels) or pod.status.phase != "Running" or not pod.spec.node_name:
        return None
    if ready is None or ready.status != "True":
        return None
    try:
        allocatable = amounts_text(pod_requests(pod))
    except BadQuantity:
        return None
    annotations = metadata.annotations or {}
    found: dict[str, Any] = {
        "name": metadata.name,
        "uid": metadata.uid,
        "labels": dict(metadata.labels or {}),
        "annotations": {name: text for name, text in annotations.items() if name not in (OWNERS, CURRENT_OWNER)},
    }
    if metadata.deletion_timestamp is not None:
        found["deletionTimestamp"] = metadata.deletion_timestamp
    spec = {
        "template": {},
        "owners": _owners(annotations.get(OWNERS, "")),
        "ttl": "0s",
        "allocateOnce": True,
        "allocatePolicy": ALIGNED,
    }
    status: dict[str, Any] = {"phase": AVAILABLE, "nodeName": pod.spec.node_name, "allocatable": allocatable}
    if current := annotations.get(CURRENT_OWNER):
        status["currentOwners"] = _current_owner(current)
    return {"metadata": found, "spec": spec, "status": status}


def _owners(text: str) -> list[Any]:
    try:
        owners: list[Owner] = read_json(text, list[Owner]) if text else []
    except msgspec.MsgspecError:
        return []
    plain: list[Any] = msgspec.to_builtins(owners)
    return plain


def _current_owner(text: str) -> list[dict[str, str]]:
    try:
        found: dict[str, Any] = read_json(text, dict[str, Any])
    except msgspec.MsgspecError:
        return []
    return [{name: str(found[name]) for name in ("namespace", "name", "uid") if name in found}] if found else []
