"""Records of hooks that act at a container's creation, by the way in which the agent reaches the runtime."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from services.node_agent import feature_gates
from services.node_agent.qos_manager.qos_manager import QosManager
from services.node_agent.runtime_hooks.hook_records import START_ONLY
from services.node_agent.service import hook_client
from services.node_agent.settings import AgentSettings
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from shared.kube.pod import Pod
from tests.unit.node_agent.qos_manager.managed_node import CID, WEB, ManagedNode

ALLOCATED = {"scheduling.koordinator.sh/device-allocated": '{"gpu": [{"minor": 0, "resources": {}}]}'}


def with_gpu() -> Pod:
    return msgspec.structs.replace(WEB, metadata=msgspec.structs.replace(WEB.metadata, annotations=ALLOCATED))


@pytest.mark.parametrize("mode", [{"nri": False}, {"hook_server": True}, {"nri": True}])
def test_a_container_that_was_created_without_the_agent_lacks_its_devices(mode: dict[str, Any], tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    agent = SimpleNamespace(qos_manager=machine.qos_manager, more_gauges=[])
    settings = AgentSettings(node="n", nri_socket=str(tmp_path / "absent"), **mode)
    client = hook_client(agent, settings, feature_gates.parse("GPUEnvInject=true"), NodePodsInformer("n", tmp_path))  # type: ignore[arg-type]
    assert (client is None) == (mode == {"nri": False})
    manager: QosManager = machine.qos_manager
    assert manager.runtime_side.follows_ends == (mode != {"hook_server": True})
    manager.runtime_side = manager.runtime_side._replace(settled=lambda: True)  # as after the first attempt
    machine.pods(with_gpu())
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    assert machine.hooked[CID["ls"]].failed == {"GPUEnvInject": START_ONLY}
