"""Admission of the ConfigMap slo-controller-config, and of nodes whose labels change under its node strategies.

The rules about its documents are in document_validation.py. This module selects the ConfigMap and formats the message:
a sentence for people, and after it the structure that upstream's tools read between `___` and `___`.

Source: spec/api.md 5.5, 5.6; spec/slo-controller.md 9; upstream pkg/webhook/cm, pkg/webhook/node.
"""

from collections.abc import Mapping

import msgspec

from shared.admission.pod.pod_json import Raw, labels_of
from shared.admission.rejection import AdmissionRejected
from shared.admission.slo_config.document_validation import (
    CHECKED,
    CONFLICT,
    NETWORK,
    QOS,
    SYSTEM,
    Problem,
    decoded,
    entries,
    validate,
)
from shared.domain.node_selection import selects
from shared.kube.slo_config import Part

NAME = "slo-controller-config"

Nodes = Mapping[str, Mapping[str, str]]
"""Name -> labels."""


def check_config_map(raw: Raw, old: Raw | None, nodes: Nodes, *, namespace: str, names: bool = False) -> None:
    """Validates a new or changed ConfigMap slo-controller-config; other ConfigMaps are ignored.

    Args:
        old: the stored ConfigMap; None at its creation.
        namespace: of slo-controller-config.
        names: each node strategy needs a unique name.

    Raises:
        AdmissionRejected: with a reason of document_validation.py.
    """
    metadata = raw.get("metadata") or {}
    if (metadata.get("namespace"), metadata.get("name")) != (namespace, NAME):
        return
    before = (old or {}).get("data") or {}
    if problem := validate(before, raw.get("data") or {}, nodes, names=names):
        raise AdmissionRejected(
            problem.reason, f"ConfigMap {namespace}/{NAME}: {problem} {structure(problem)}".rstrip()
        )


def check_node(config_map: Raw | None, node: Raw, old: Raw) -> None:
    """Validates a change of a node's labels: of each key, at most one node strategy may select the node.

    Raises:
        AdmissionRejected: ExistNodeConfict.
    """
    if config_map is None or labels_of(node) == labels_of(old):
        return
    name, data = node["metadata"]["name"], config_map.get("data") or {}
    for key in CHECKED:
        document = _readable(key, data)
        if document is None:
            continue
        hit = [entry for entry in entries(document) if selects(entry.selector, labels_of(node))]
        if len(hit) > 1:
            strategies = ", ".join(entry.name for entry in hit)
            text = f"would both select node {name}; change its labels otherwise, or the strategies ({strategies})"
            problem = Problem(CONFLICT, key, f"{hit[0].path}.nodeSelector", strategies, text, (name,))
            raise AdmissionRejected(CONFLICT, f"node {name}: {problem} {structure(problem)}")


def _readable(key: str, data: Mapping[str, str]) -> Part | None:
    """Reads a key's document; one that cannot be read selects no nodes. Network QoS needs the bandwidths (quirk Q10)."""
    document = decoded(key, data[key]) if data.get(key) else None
    if key == QOS and not isinstance(decoded(SYSTEM, data.get(SYSTEM, "")), Part):
        return None
    return document if isinstance(document, Part) else None


def structure(problem: Problem) -> str:
    """Returns the structure that upstream's tools read; an invalid network QoS has no reason code and none."""
    if problem.reason == NETWORK:
        return ""
    message: object = f"{problem}"
    if problem.nodes:
        message = {
            "config": problem.key,
            "strategies": problem.strategy.split(", "),
            "exampleNodes": list(problem.nodes),
        }
    return f"___{msgspec.json.encode({'reason': problem.reason, 'message': message}).decode()}___"
