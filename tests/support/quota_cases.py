"""Inputs of quota cases in few words, in the shape in which they are recorded."""

from typing import Any

from shared.kube.elastic_quota import PREFIX, QUOTA_NAME

NOW = "2026-07-24T00:00:00Z"


def quota(name: str, max_: str, min_: str | None = None, *, parent: str = "", **more: Any) -> dict[str, Any]:
    """Returns a quota of cpu; `max_` and `min_` may name more resources, as `cpu=4 memory=8`."""
    labels = {PREFIX + key.replace("_", "-"): value for key, value in more.pop("labels", {}).items()}
    if parent:
        labels[PREFIX + "parent"] = parent
    annotations = {PREFIX + key.replace("_", "-"): value for key, value in more.pop("annotations", {}).items()}
    metadata = {"name": name, "namespace": "quotas", "labels": labels, "annotations": annotations, **more}
    return {"metadata": metadata, "spec": {"max": sizes(max_), "min": sizes(min_ or "")}}


def node(name: str, allocatable: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": sizes(allocatable)}}


def pod(name: str, of: str, requests: str, *, on: str = "", version: str = "1", **more: Any) -> dict[str, Any]:
    """Returns a pod of a quota; `version` is its resourceVersion."""
    labels = {QUOTA_NAME: of} if of else {}
    if more.pop("is_preemptible", True) is False:
        labels[PREFIX + "preemptible"] = "false"
    metadata = {"name": name, "namespace": "ns", "labels": labels, "resourceVersion": version}
    if more.pop("is_leaving", False):
        metadata["deletionTimestamp"] = "2036-07-24T00:00:00Z"
    spec = {
        "containers": [{"name": "c", "resources": {"requests": sizes(requests)}}],
        "priority": more.pop("priority", 0),
    }
    if on:
        spec["nodeName"] = on
    return {"metadata": metadata, "spec": spec, "status": more}


def sizes(text: str) -> dict[str, str]:
    """Parses amounts: `4` is four cores; else names and quantities."""
    if not text:
        return {}
    return dict(part.split("=", 1) for part in text.split()) if "=" in text else {"cpu": text}


def add(thing: dict[str, Any]) -> dict[str, Any]:
    """Returns the event that adds a quota, a node or a pod."""
    return {"type": f"{_kind(thing)}Add", _kind(thing): thing}


def drop(thing: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"{_kind(thing)}Delete", _kind(thing): thing}


def change(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"{_kind(new)}Update", "old": old, _kind(new): new}


def case(*events: dict[str, Any], args: dict[str, Any] | None = None, gates: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns a history with all events in one step; the same events for the ops that have no steps."""
    return {
        "args": args or {},
        "featureGates": list(gates),
        "now": NOW,
        "events": [*events],
        "steps": [{"events": [*events]}],
    }


def steps(given: dict[str, Any], *more: dict[str, Any]) -> dict[str, Any]:
    """Returns the same history with further steps of one event each."""
    return given | {"steps": [*given["steps"], *({"events": [event]} for event in more)]}


def _kind(thing: dict[str, Any]) -> str:
    if "containers" in thing.get("spec", {}):
        return "pod"
    return "node" if "allocatable" in thing.get("status", {}) else "quota"
