"""A pod's JSON as admission sees it: typed where classes and requests are asked for, plain where it is rewritten."""

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import msgspec

from shared.admission.rejection import Refused
from shared.kube.pod import Pod

Raw = Mapping[str, Any]
Resources = MutableMapping[str, Any]


def pod_of(raw: Raw) -> Pod:
    """The typed pod.

    Raises:
        Refused: `malformed`, a field is not of its type.
    """
    try:
        return msgspec.convert(raw, Pod)
    except msgspec.ValidationError as error:
        raise Refused("malformed", f"pod {key_of(raw)}: {error}") from error


def copy_of(raw: Raw) -> dict[str, Any]:
    """A copy that may be changed in place."""
    copied: dict[str, Any] = msgspec.to_builtins(raw)
    return copied


def key_of(raw: Raw) -> str:
    """`namespace/name`, for messages; a pod made from a template has a prefix only."""
    metadata = raw.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName", "") + "?"
    return f"{metadata.get('namespace', '')}/{name}"


def labels_of(raw: Raw) -> Mapping[str, str]:
    """The object's labels."""
    return (raw.get("metadata") or {}).get("labels") or {}


def annotations_of(raw: Raw) -> Mapping[str, str]:
    """The object's annotations."""
    return (raw.get("metadata") or {}).get("annotations") or {}


def app_containers(raw: Raw) -> Iterator[dict[str, Any]]:
    """The containers that are not init containers."""
    yield from (raw.get("spec") or {}).get("containers") or ()


def all_containers(raw: Raw) -> Iterator[dict[str, Any]]:
    """Init containers, then the others."""
    yield from (raw.get("spec") or {}).get("initContainers") or ()
    yield from app_containers(raw)


def written(container: MutableMapping[str, Any], kind: str) -> Resources:
    """`requests` or `limits` of a container, made if it is not there."""
    resources = container.setdefault("resources", {})
    amounts: Resources = resources.setdefault(kind, {})
    return amounts


def stated(container: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """`requests` or `limits` of a container; empty if it states none."""
    return (container.get("resources") or {}).get(kind) or {}
