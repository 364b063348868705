"""The `webhook` vectors' cases of NodeSLOs: as the controller writes them, and as an agent reads them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from services.slo_controller.config import config_of, read
from services.slo_controller.node_slo import node_slo_spec
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.meta import Metadata
from shared.kube.quantity import nanos
from shared.kube.quantity_text import notation_of, quantity_text


def render_node_slo(given: Mapping[str, Any]) -> dict[str, Any]:
    """A `renderNodeSLO` case: one ConfigMap after the other, none of which a webhook has seen."""
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
    """An `agentMergeNodeSLO` case."""
    return {"steps": [{"spec": _agreed(step.get("spec"))} for step in given["steps"]]}


def _agreed(spec: Any) -> dict[str, Any]:
    received = msgspec.convert(spec or {}, NodeSloSpec)
    return _recorded(msgspec.json.decode(msgspec.json.encode(in_force(received))))


def _recorded(spec: dict[str, Any]) -> dict[str, Any]:
    """A bandwidth in the API's own text."""
    if system := spec.get("systemStrategy"):
        text = str(system["totalNetworkBandwidth"])
        spec["systemStrategy"] = system | {"totalNetworkBandwidth": quantity_text(nanos(text), notation_of(text))}
    return spec
