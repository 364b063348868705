"""A pod's JSON during admission: typed for reading classes and requests, plain for rewriting."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

from shared.admission.rejection import AdmissionRejected
from shared.kube.pod import Pod

Raw = Mapping[str, Any]
Resources = MutableMapping[str, Any]


def pod_of(raw: Raw) -> Pod:
    """Converts to a typed pod.

    Raises:
        AdmissionRejected: `malformed`, a field is not of its type.
    """
    try:
        return msgspec.convert(raw, Pod)
    except msgspec.ValidationError as error:
        raise AdmissionRejected("malformed", f"pod {key_of(raw)}: {error}") from error


def copy_of(raw: Raw) -> dict[str, Any]:
    """Copies a pod, so that it may be changed in place."""
    copied: dict[str, Any] = msgspec.to_builtins(raw)
    return copied


def key_of(raw: Raw) -> str:
    """Returns `namespace/name` for messages; a pod of a template has only a name prefix yet."""
    metadata = raw.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName", "") + "?"
    return f"{metadata.get('namespace', '')}/{name}"


def labels_of(raw: Raw) -> Mapping[str, str]:
    """Returns the object's labels."""
    return (raw.get("metadata") or {}).get("labels") or {}


def annotations_of(raw: Raw) -> Mapping[str, str]:
    """Returns the object's annotations."""
    return (raw.get("metadata") or {}).get("annotations") or {}


def app_containers(raw: Raw) -> Iterator[dict[str, Any]]:
    """Yields the containers that are not init containers."""
    yield from (raw.get("spec") or {}).get("containers") or ()


def all_containers(raw: Raw) -> Iterator[dict[str, Any]]:
    """Yields init containers, then the others."""
    yield from (raw.get("spec") or {}).get("initContainers") or ()
    yield from app_containers(raw)


def writable_resources(container: MutableMapping[str, Any], kind: str) -> Resources:
    """Returns `requests` or `limits` of a container; creates it if it is absent."""
    resources = container.setdefault("resources", {})
    amounts: Resources = resources.setdefault(kind, {})
    return amounts


def resources_of(container: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Returns `requests` or `limits` of a container; empty if it is absent."""
    return (container.get("resources") or {}).get(kind) or {}
