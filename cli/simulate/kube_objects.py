"""Nodes and pods from Kubernetes objects: a `List`, as `kubectl get nodes -o yaml` prints it, or YAML documents one
after another.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import yaml

from cli.dev.misspelt_fields import misspelt_fields
from cli.simulate import reservations, workloads
from cli.simulate.unknown_fields import unknown_fields
from shared.domain.gang import settings_of_pod_group
from shared.domain.ignored_gang_annotations import unknown_gang_settings
from shared.domain.network_topology import OBJECT, BadNetworkTopology, read_layers
from shared.errors import KoordError
from shared.kube import resource_names
from shared.kube.device import Device
from shared.kube.meta import KubeStruct
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.type_error_words import field_fault
from shared.yaml_fault import yaml_fault

T = TypeVar("T", bound=KubeStruct)

POD_GROUP = "PodGroup"
NETWORK_TOPOLOGY = "ClusterNetworkTopology"
DEVICE = "Device"

_RESOURCES = {
    POD_GROUP: resource_names.POD_GROUPS,
    NETWORK_TOPOLOGY: resource_names.NETWORK_TOPOLOGIES,
    DEVICE: resource_names.DEVICES,
    reservations.KIND: resource_names.RESERVATIONS,
}

_AMOUNTS = frozenset(("allocatable", "capacity", "limits", "overhead", "requests", "resources"))
"""Fields with amounts, which the API accepts as numbers too."""


class BadObjects(KoordError):
    """A file that holds no such objects: names the file, the object and what is wrong."""


class _Loader(yaml.SafeLoader):
    """Times stay text, as in JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012  as the base class declares it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_nodes(path: Path) -> list[Node]:
    """The Nodes of a file.

    Raises:
        BadObjects: it is not YAML, an object is not as the API has it, or there is no Node.
    """
    found = list(_objects(path))
    nodes = [_converted(path, plain, Node) for plain in found if plain["kind"] == "Node"]
    if not nodes:
        raise BadObjects(f"{path} {_instead_of('Node', found)}; --nodes is the file of the nodes")
    return nodes


def read_pods(path: Path, nodes: Sequence[Node]) -> list[Pod]:
    """The Pods of a file, with those of its workloads; pods without a uid get their place in the file for one.

    Objects of other kinds, and fields that the API does not have, are named on stderr.

    Raises:
        BadObjects: it is not YAML, an object is not as the API has it, or there is no pod.
    """
    found = list(_objects(path))
    others = [
        plain
        for plain in found
        if plain["kind"] not in (*workloads.KINDS, reservations.KIND, POD_GROUP, NETWORK_TOPOLOGY, DEVICE)
    ]
    names = [node.metadata.name for node in nodes]
    plain_pods = [pod for plain in found if plain["kind"] in workloads.KINDS for pod in _pods_of(path, plain, names)]
    if not plain_pods and len(others) == len(found):
        raise BadObjects(
            f"{path} {_instead_of('pod', found)}; --pods is the file of {', '.join(workloads.KINDS)} objects"
        )
    if others:
        click.echo(f"{path}: passed over: {_kinds(others)}", err=True)
    for line in unknown_fields((_name(plain), plain) for plain in plain_pods):
        click.echo(f"{path}: {line}", err=True)
    pods = []
    for number, plain in enumerate(plain_pods):
        pod = _converted(path, plain, Pod)
        metadata = msgspec.structs.replace(
            pod.metadata,
            namespace=pod.metadata.namespace or "default",
            uid=pod.metadata.uid or f"{number:06}",
            name=pod.metadata.name or f"pod-{number:06}",
        )
        pods.append(msgspec.structs.replace(pod, metadata=metadata))
    return pods


def read_reservations(path: Path) -> list[dict[str, Any]]:
    """The Reservations of a file, as objects; mostly none.

    Raises:
        BadObjects: it is not YAML, or one has no name.
    """
    return _named(path, reservations.KIND)


def read_pod_groups(path: Path) -> list[dict[str, Any]]:
    """The PodGroups of a file, as objects, each with its namespace; mostly none.

    Raises:
        BadObjects: it is not YAML, one has no name, or its settings cannot be read.
    """
    found = _named(path, POD_GROUP)
    for plain in found:
        metadata = plain["metadata"] = {**plain["metadata"]}
        metadata["namespace"] = metadata.get("namespace") or "default"
        gang = f"{metadata['namespace']}/{metadata['name']}"
        if settings_of_pod_group(gang, plain) is None:
            minimum = (plain.get("spec") or {}).get("minMember")
            raise BadObjects(f"{path}: PodGroup {gang}: spec.minMember is {minimum!r}; give a whole number")
    return found


def read_network_topologies(path: Path) -> list[dict[str, Any]]:
    """The ClusterNetworkTopology objects of a file; mostly none.

    Raises:
        BadObjects: it is not YAML, one has no name, or the layers of the one that counts form no chain.
    """
    found = _named(path, NETWORK_TOPOLOGY)
    for plain in found:
        if plain["metadata"]["name"] == OBJECT:
            try:
                read_layers(plain)
            except BadNetworkTopology as error:
                raise BadObjects(f"{path}: {error}") from error
    return found


def read_devices(path: Path) -> list[dict[str, Any]]:
    """The Device objects of a file, named after their nodes; mostly none.

    Raises:
        BadObjects: it is not YAML, one has no name, or its devices are not as the API has them.
    """
    found = _named(path, DEVICE)
    for plain in found:
        _converted(path, plain, Device)
    return found


def _named(path: Path, kind: str) -> list[dict[str, Any]]:
    found = [plain for plain in _objects(path) if plain["kind"] == kind]
    for plain in found:
        if not isinstance(plain.get("metadata"), dict) or not plain["metadata"].get("name"):
            raise BadObjects(f"{path}: a {kind} has no name; give metadata.name")
        for fault in _unread_parts(kind, plain):
            click.echo(f"{path}: {kind} {_name(plain)}: {fault}", err=True)
    return found


def _unread_parts(kind: str, plain: dict[str, Any]) -> Iterator[str]:
    """Yields the fields that the kind does not have, and of a PodGroup the annotations of gangs that nothing reads."""
    for fault in misspelt_fields(_RESOURCES[kind], plain):
        yield fault.replace(" is no field of the API", " is no field of the API and is ignored", 1)
    annotations = plain["metadata"].get("annotations")
    if kind == POD_GROUP and isinstance(annotations, dict):
        yield from unknown_gang_settings({}, annotations)


def _pods_of(path: Path, plain: dict[str, Any], nodes: Sequence[str]) -> list[dict[str, Any]]:
    try:
        return list(workloads.pods_of(plain, nodes))
    except (AttributeError, TypeError, ValueError) as error:
        raise BadObjects(f"{path}: {plain['kind']} {_name(plain)}: {error}") from error


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file, those of lists one by one; each has a kind."""
    try:
        documents = [document for document in yaml.load_all(path.read_text(), _Loader) if document]
    except yaml.YAMLError as error:
        raise BadObjects(f"{path}: not YAML: {yaml_fault(error)}") from error
    except UnicodeDecodeError as error:
        raise BadObjects(f"{path}: no text: {error}") from error
    for document in documents:
        plains = document["items"] if isinstance(document, dict) and "items" in document else [document]
        for plain in plains if isinstance(plains, list) else [plains]:
            if not isinstance(plain, dict):
                raise BadObjects(f"{path}: {plain!r} is no object")
            if not isinstance(plain.get("kind"), str):
                raise BadObjects(f"{path}: the object {_name(plain)} has no kind")
            yield _with_amounts_as_text(plain)


def _with_amounts_as_text(plain: Any) -> Any:
    """Returns an object with its amounts as text: `cpu: 3` is `cpu: "3"`."""
    if isinstance(plain, list):
        return [_with_amounts_as_text(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    return {
        key: {name: _text(amount) for name, amount in value.items()}
        if key in _AMOUNTS and isinstance(value, dict) and not any(isinstance(each, dict) for each in value.values())
        else _with_amounts_as_text(value)
        for key, value in plain.items()
    }


def _text(amount: Any) -> Any:
    return str(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else amount


def _kinds(plains: Sequence[dict[str, Any]]) -> str:
    counted = Counter(plain["kind"] for plain in plains)
    return ", ".join(f"{number} {kind}" for kind, number in counted.items())


def _instead_of(kind: str, found: Sequence[dict[str, Any]]) -> str:
    """Returns what a file has in which a kind is missing."""
    return f"has no {kind}, but {_kinds(found)}" if found else f"is empty: it has no {kind}"


def _name(plain: dict[str, Any]) -> str:
    metadata = plain.get("metadata")
    return str(metadata.get("name", "without a name")) if isinstance(metadata, dict) else "without a name"


def _converted(path: Path, plain: dict[str, Any], to: type[T]) -> T:
    try:
        return msgspec.convert(plain, to, strict=False)
    except msgspec.ValidationError as error:
        raise BadObjects(f"{path}: {to.__name__} {_name(plain)}: {field_fault(error)}") from error
