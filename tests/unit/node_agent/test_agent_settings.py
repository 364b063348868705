"""The agent's settings and imports."""

import subprocess
import sys

import pytest

from services.node_agent.settings import NoNodeName, TooManySamples, load
from shared.settings import BadSetting


def test_the_nodes_name_comes_from_its_own_setting_or_from_node_name() -> None:
    assert load({"NODE_NAME": "a"})[1].node == "a"
    assert load({"NODE_NAME": "a", "KOORD_NODE_AGENT_NODE": "b"})[1].node == "b"
    with pytest.raises(NoNodeName, match="neither KOORD_NODE_AGENT_NODE nor NODE_NAME is set"):
        load({})


def test_an_invalid_setting_is_named() -> None:
    with pytest.raises(BadSetting, match="KOORD_NODE_AGENT_COLLECT_INTERVAL_S is '0'"):
        load({"NODE_NAME": "a", "KOORD_NODE_AGENT_COLLECT_INTERVAL_S": "0"})
    with pytest.raises(TooManySamples, match="a report holds at most 7200 samples"):
        load(
            {
                "NODE_NAME": "a",
                "KOORD_NODE_AGENT_COLLECT_INTERVAL_S": "0.1",
                "KOORD_NODE_AGENT_REPORT_INTERVAL_S": "3600",
            }
        )


ALL_OF_IT = """
import importlib, pkgutil, sys
import services.node_agent
for module in pkgutil.walk_packages(services.node_agent.__path__, "services.node_agent."):
    importlib.import_module(module.name)
print(sorted({name for name in sys.modules if name.split(".")[0] in {"numpy", "sqlalchemy", "asyncpg"}
              or name in {"shared.log", "shared.runtime.service", "shared.events"}}))
"""

AS_IT_STARTS = """
import sys
import cli.commands.run, services.node_agent.service, services.node_agent.transport.mqtt_transport
print(sorted(set(sys.modules) & {"numpy", "aiohttp", "prometheus_client", "nats", "uvloop", "shared.log", "shared.runtime.service"}))
"""


@pytest.mark.parametrize("program", [ALL_OF_IT, AS_IT_STARTS])
def test_the_agent_carries_neither_the_log_nor_numpy(program: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
