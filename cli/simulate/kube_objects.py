"""Nodes and pods from Kubernetes objects: a `List`, as `kubectl get nodes -o yaml` prints it, or YAML documents one
after another.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from shared.errors import KoordError
from shared.kube.meta import KubeStruct
from shared.kube.node import Node
from shared.kube.pod import Pod

T = TypeVar("T", bound=KubeStruct)


class BadObjects(KoordError):
    """A file that holds no such objects: names the file, the object and what is wrong."""


def read_nodes(path: Path) -> list[Node]:
    """The Nodes of a file.

    Raises:
        BadObjects: it is not YAML, or an object is not as the API has it.
    """
    return [_converted(path, plain, Node) for plain in _objects(path, "Node")]


def read_pods(path: Path) -> list[Pod]:
    """The Pods of a file; those without a uid get their place in the file for one.

    Raises:
        BadObjects: it is not YAML, or an object is not as the API has it.
    """
    pods = []
    for number, plain in enumerate(_objects(path, "Pod")):
        pod = _converted(path, plain, Pod)
        metadata = msgspec.structs.replace(
            pod.metadata,
            namespace=pod.metadata.namespace or "default",
            uid=pod.metadata.uid or f"{number:06}",
            name=pod.metadata.name or f"pod-{number:06}",
        )
        pods.append(msgspec.structs.replace(pod, metadata=metadata))
    return pods


def _objects(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    except yaml.YAMLError as error:
        raise BadObjects(f"{path}: not YAML: {error}") from error
    for document in documents:
        for plain in document.get("items", [document]) if isinstance(document, dict) else [document]:
            if not isinstance(plain, dict):
                raise BadObjects(f"{path}: {plain!r} is no object")
            if plain.get("kind", kind) == kind:
                yield plain


def _converted(path: Path, plain: dict[str, Any], to: type[T]) -> T:
    try:
        return msgspec.convert(plain, to, strict=False)
    except msgspec.ValidationError as error:
        name = plain.get("metadata", {}).get("name", "without a name")
        raise BadObjects(f"{path}: {to.__name__} {name}: {error}") from error
