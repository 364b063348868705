"""cli/dev/custom_resource_fields.json: the fields of k8s/crds, which an installed `koord` does not have, with their types."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

CRDS = Path(__file__).parents[1] / "k8s" / "crds"

Fields = dict[str, Any] | str | None
"""Field -> its own fields; `*` stands for every name of a map. Of a single value its type; None where any is allowed."""

SINGLE = ("boolean", "integer", "number", "string")


def custom_resource_fields() -> str:
    """Returns the file: resource, such as `podgroups.scheduling.sigs.k8s.io` -> its fields."""
    found = {}
    for file in sorted(CRDS.glob("*.*.yaml")):
        definition = yaml.safe_load(file.read_text())
        [version] = [each for each in definition["spec"]["versions"] if each["storage"]]
        found[definition["metadata"]["name"]] = _fields(version["schema"]["openAPIV3Schema"])
    return msgspec.json.format(msgspec.json.encode(found, order="sorted"), indent=1).decode() + "\n"


def _fields(schema: dict[str, Any]) -> Fields:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    if "items" in schema:
        return _fields(schema["items"])
    if "properties" in schema:
        return {name: _fields(inner) for name, inner in schema["properties"].items()}
    if isinstance(values := schema.get("additionalProperties"), dict):
        inner = _fields(values)
        return None if inner is None else {"*": inner}
    return kind if (kind := schema.get("type")) in SINGLE else None
