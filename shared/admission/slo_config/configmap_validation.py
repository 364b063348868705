"""The ConfigMap slo-controller-config on its way in, and nodes whose labels change under it.

The rules about its documents are in slo_config.py; here is which ConfigMap they are about, and how a refusal reads: a sentence for people,
and after it the structure that upstream's tools cut out between `___` and `___`.

Source: spec/api.md 5.5, 5.6; spec/slo-controller.md 9; upstream pkg/webhook/cm, pkg/webhook/node.
"""

from collections.abc import Mapping

import msgspec

from shared.admission.pod.pod_json import Raw, labels_of
from shared.admission.rejection import Refused
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
    """Whether the ConfigMap may be created, or changed to this. Others are not looked at.

    Args:
        old: the stored one; None when it is created.
        namespace: where the one that counts is.
        names: whether each node strategy needs a name of its own.

    Raises:
        Refused: a reason of slo_config.py.
    """
    metadata = raw.get("metadata") or {}
    if (metadata.get("namespace"), metadata.get("name")) != (namespace, NAME):
        return
    before = (old or {}).get("data") or {}
    if problem := validate(before, raw.get("data") or {}, nodes, names=names):
        raise Refused(problem.reason, f"ConfigMap {namespace}/{NAME}: {problem} {structure(problem)}".rstrip())


def check_node(config_map: Raw | None, node: Raw, old: Raw) -> None:
    """Whether a node's labels may change so: of each key at most one node strategy may select it.

    Raises:
        Refused: ExistNodeConfict.
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
            raise Refused(CONFLICT, f"node {name}: {problem} {structure(problem)}")


def _readable(key: str, data: Mapping[str, str]) -> Part | None:
    """A key's document; one that cannot be read selects no nodes. Network QoS cannot be read without the bandwidths (quirk Q10)."""
    document = decoded(key, data[key]) if data.get(key) else None
    if key == QOS and not isinstance(decoded(SYSTEM, data.get(SYSTEM, "")), Part):
        return None
    return document if isinstance(document, Part) else None


def structure(problem: Problem) -> str:
    """What upstream's tools read; a refused network QoS has no reason code there and nothing to read."""
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
