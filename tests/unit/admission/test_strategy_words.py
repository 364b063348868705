"""The known texts of strategies are those of the custom resources."""

from pathlib import Path
from typing import Any

import yaml

from shared.admission.slo_config.strategy_words import COLLECT_POLICIES, REFUSED

CRDS = Path(__file__).parents[3] / "k8s" / "crds"


def enumerations(resource: str) -> dict[str, set[str]]:
    """Returns the last part of the path of each field with an enumeration -> its texts."""
    definition = yaml.safe_load((CRDS / f"{resource}.slo.koordinator.sh.yaml").read_text())
    found: dict[str, set[str]] = {}

    def walk(schema: dict[str, Any], name: str) -> None:
        if "enum" in schema:
            found[name] = set(schema["enum"])
        for inner, below in (schema.get("properties") or {}).items():
            walk(below, inner)
        if isinstance(schema.get("items"), dict):
            walk(schema["items"], name)

    [version] = definition["spec"]["versions"]
    walk(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")
    return found


def test_every_enumeration_of_a_node_slo_is_known() -> None:
    known = {name: set(texts) for fields in REFUSED.values() for name, texts in fields.items()}
    of_api = enumerations("nodeslos")
    assert of_api.keys() <= known.keys()
    assert {name: known[name] for name in of_api} == of_api


def test_the_collect_policies_are_those_of_a_node_metric() -> None:
    assert enumerations("nodemetrics") == {"nodeMemoryCollectPolicy": set(COLLECT_POLICIES)}
