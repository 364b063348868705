"""Fields of an object of the simulated cluster that its kind does not have, or that have values of another type. An API
server refuses them for kubectl, as a typing error that would pass as a field left out.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from cli.simulate.unknown_fields import unknown_in
from services.simulator.api.resource_kinds import (
    CONFIGMAPS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
)
from shared.closest_name import did_you_mean
from shared.domain.reservation import PodTemplate
from shared.kube.meta import Metadata
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.resource_names import RESERVATIONS

Fields = Mapping[str, Any] | str | None
"""As in custom_resource_fields.json: field -> its own fields; `*` stands for every name. A text is the type of a single
value; None: not known.
"""

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str, date),  # YAML reads an instant as one
}
_TEXTS: Fields = {"metadata": {"labels": {"*": "string"}, "annotations": {"*": "string"}}}
"""Of every object."""

_TYPES: Mapping[str, type[msgspec.Struct]] = {PODS.name: Pod, NODES.name: Node}
_BUILT_IN: Mapping[str, Fields] = {
    NAMESPACES.name: {"spec": {"finalizers": None}, "status": None},
    CONFIGMAPS.name: dict.fromkeys(("data", "binaryData", "immutable")),
    REPLICA_SETS.name: {
        "spec": {
            "minReadySeconds": None,
            "replicas": None,
            "selector": {"matchLabels": None, "matchExpressions": {"key": None, "operator": None, "values": None}},
            "template": None,
        },
        "status": None,
    },
    PRIORITY_CLASSES.name: dict.fromkeys(("value", "globalDefault", "description", "preemptionPolicy")),
}
_OF_EVERY_OBJECT: Mapping[str, Any] = {"apiVersion": None, "kind": None, "metadata": None}


def misspelt_fields(resource: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Yields the faults of fields: `spec.mim is no field of the API; perhaps 'min' is meant`, `spec.minMember must be of
    type integer, and is 'three'`.

    Args:
        resource: its name with the group, as in events.
        body: the object, or a JSON merge patch of it.
    """
    for path, close in _misspelt(resource, body):
        yield f"{path} is no field of the API{close}"
    for fields in (_custom_resources().get(resource), _TEXTS):
        yield from _of_other_types(body, fields, "")


def _misspelt(resource: str, body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if (kind := _TYPES.get(resource)) is not None:
        yield from unknown_in(body, kind)
        return
    fields = _BUILT_IN.get(resource) or _custom_resources().get(resource)
    if not isinstance(fields, Mapping):
        return
    yield from _not_in(body, {**_OF_EVERY_OBJECT, **fields}, "")
    yield from unknown_in(body.get("metadata"), Metadata, "metadata")
    spec = body.get("spec")
    if resource in (RESERVATIONS, REPLICA_SETS.name) and isinstance(spec, dict):
        # The schemas leave the template open; its pod has the fields of every pod.
        yield from unknown_in(spec.get("template"), PodTemplate, "spec.template")


@cache
def _custom_resources() -> Mapping[str, Fields]:
    text = files("cli.dev").joinpath("custom_resource_fields.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, Any] | None])


def _not_in(value: Any, fields: Fields, path: str) -> Iterator[tuple[str, str]]:
    if fields is None or isinstance(fields, str):
        return
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _not_in(item, fields, f"{path}[{number}]")
    elif isinstance(value, dict):
        for name, inner in value.items():
            place = f"{path}.{name}" if path else str(name)
            if name in fields or "*" in fields:
                yield from _not_in(inner, fields.get(name, fields.get("*")), place)
            else:
                yield place, did_you_mean(str(name), fields)


def _of_other_types(value: Any, fields: Fields, path: str) -> Iterator[str]:
    if fields is None or value is None:  # in a patch None removes the field
        return
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _of_other_types(item, fields, f"{path}[{number}]")
    elif isinstance(fields, str):
        types = _PYTHON_TYPES[fields]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            yield f"{path} must be of type {fields}, and is {value!r}"
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _of_other_types(
                inner, fields.get(name, fields.get("*")), f"{path}.{name}" if path else str(name)
            )
    else:
        yield f"{path} must have fields, and is {value!r}"
