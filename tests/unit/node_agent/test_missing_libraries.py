"""An agent whose gates need libraries that its image does not have."""

import sys
from pathlib import Path

import pytest

from services.node_agent import feature_gates
from services.node_agent.service import MissingExtra, _serve_pod_resources
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.received_node_pods import NodePodsInformer


async def test_the_gate_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.delitem(sys.modules, "services.node_agent.pod_resources.proxy", raising=False)
    gates = feature_gates.parse("PodResourcesProxy=true")
    with pytest.raises(MissingExtra, match=r"gate PodResourcesProxy needs the extra `devices`.*node-agent,devices"):
        await _serve_pod_resources(AgentSettings(), gates, NodePodsInformer("n", tmp_path))
