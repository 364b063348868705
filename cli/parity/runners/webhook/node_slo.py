"""Runs NodeSLOs both ways: op `renderNodeSLO` as the controller writes them, op `agentMergeNodeSLO` as an agent reads
them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cli.parity.runners.webhook.canonical_quantities import canonical
from services.slo_controller.config.node_slo_spec import node_slo_spec
from services.slo_controller.config.slo_configmap import config_of, read
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.json_text import json_value
from shared.kube.meta import Metadata


def render_node_slo(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `renderNodeSLO`: one ConfigMap after the other, none of which a webhook has checked."""
    nodes = [msgspec.convert(node["metadata"], Metadata) for node in given["nodes"]]
    texts: dict[str, str] = {}
    config, steps = config_of(texts), []
    for step in given["steps"]:
        data = step.get("configMapData")
        texts = read(data, texts, bounds=False).texts if data is not None else {}
        before, config = config, config_of(texts)
        specs = {node.name: _recorded(node_slo_spec(config, node)) for node in nodes}
        steps.append({"changed": config != before, "specs": specs})
    return {"steps": steps}


def agent_merge_node_slo(given: Mapping[str, Any]) -> dict[str, Any]:
    """Runs op `agentMergeNodeSLO`: each received spec merged over the defaults."""
    return {"steps": [{"spec": _merged(step.get("spec"))} for step in given["steps"]]}


def _merged(spec: Any) -> dict[str, Any]:
    merged = json_value(in_force(msgspec.convert(spec or {}, NodeSloSpec)))
    del merged["extensions"]  # of this system alone
    return _recorded(merged)


def _recorded(spec: dict[str, Any]) -> dict[str, Any]:
    """Returns a spec with its bandwidth in canonical text."""
    if system := spec.get("systemStrategy"):
        spec["systemStrategy"] = system | {"totalNetworkBandwidth": canonical(str(system["totalNetworkBandwidth"]))}
    return spec
