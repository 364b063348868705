"""QoS plugins of other distributions: found by entry points, configured by a ConfigMap, and unable to stop the agent."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from services.node_agent.cgroup.executor import CgroupValue
from services.node_agent.qos_plugins import plugin_interface
from services.node_agent.qos_plugins.plugin_interface import Policy, StrategyInputs
from services.node_agent.qos_plugins.qos_plugins import BadPlugin, QosPlugins, switched_on
from shared.kube.pod import Pod
from tests.support.pods import kept_pod
from tests.unit.node_agent.qos_manager.managed_node import CID, LS, ManagedNode


class Burst:
    """Lets pods burst that have a label, by a configured percentage."""

    def __init__(self) -> None:
        self.percent = 100

    def configure(self, config: Any) -> None:
        if config is not None and config["percent"] < 0:
            raise ValueError("percent is negative")
        self.percent = config["percent"] if config is not None else 100

    def policy(self, pod: Pod, policy: Policy) -> dict[str, Any] | None:
        if policy != "CPUBurst" or pod.metadata.name == "none":
            return None
        if pod.metadata.name == "fails":
            raise RuntimeError("no such pod")
        return {"policy": "cpuBurstOnly", "cpuBurstPercent": self.percent}


class Shares:
    """Writes a value each cycle, and fails in its third one."""

    def __init__(self) -> None:
        self.cycles = 0

    def configure(self, config: Any) -> None:
        pass

    def run_cycle(self, inputs: StrategyInputs) -> None:
        self.cycles += 1
        if self.cycles == 3:
            raise RuntimeError("third cycle")
        for each in inputs.pods:
            inputs.update(CgroupValue("cpu.shares", each.folder, "512"))


def installed() -> list[EntryPoint]:
    here = __name__
    return [
        EntryPoint("Canary", f"{here}:Burst", plugin_interface.POD_POLICIES),
        EntryPoint("Ours", f"{here}:Shares", plugin_interface.STRATEGIES),
        EntryPoint("Broken", f"{here}:Missing", plugin_interface.STRATEGIES),
    ]


def plugins(folder: Path, *names: str) -> QosPlugins:
    return QosPlugins.load(names, folder, installed())


def annotation(found: Pod) -> str | None:
    return (found.metadata.annotations or {}).get("koordinator.sh/cpuBurst")


def test_the_setting_names_those_that_are_on() -> None:
    assert switched_on("Canary=true, Ours=false,Other=true") == ("Canary", "Other")
    with pytest.raises(BadPlugin, match="'Canary' is not NAME=true or NAME=false"):
        switched_on("Canary")


def test_one_that_is_not_installed_or_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadPlugin, match="Absent is not installed; installed are: Broken, Canary, Ours"):
        plugins(tmp_path, "Absent")
    with pytest.raises(BadPlugin, match="Broken cannot be loaded: AttributeError"):
        plugins(tmp_path, "Broken")


def test_a_pod_without_the_annotation_has_the_plugins_settings(tmp_path: Path) -> None:
    loaded = plugins(tmp_path, "Canary")
    assert annotation(loaded.with_policies(kept_pod("p"))) == '{"policy":"cpuBurstOnly","cpuBurstPercent":100}'
    assert annotation(loaded.with_policies(kept_pod("none"))) is None
    own = kept_pod("p", annotations={"koordinator.sh/cpuBurst": "{}"})
    assert loaded.with_policies(own) == own


def test_configuration_comes_from_the_config_map_and_the_last_good_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loaded, file = plugins(tmp_path, "Canary"), tmp_path / "qos-plugin-extra-configs"

    def percent(text: str) -> str:
        file.write_text(text)
        loaded.refresh_config()
        return (annotation(loaded.with_policies(kept_pod("p"))) or "").rpartition(":")[2]

    assert percent('{"Canary": {"percent": 250}}') == "250}"
    assert percent("no JSON") == "250}"
    assert percent('{"Canary": {"percent": -1}}') == "250}"
    assert [("no JSON object" in text, "negative" in text) for text in caplog.messages] == [
        (True, False),
        (False, True),
    ]
    file.unlink()
    loaded.refresh_config()
    assert (annotation(loaded.with_policies(kept_pod("p"))) or "").endswith(":100}")


def test_a_plugin_that_fails_is_left_out_and_the_agent_goes_on(tmp_path: Path) -> None:
    loaded = plugins(tmp_path, "Canary")
    assert annotation(loaded.with_policies(kept_pod("fails"))) is None
    assert annotation(loaded.with_policies(kept_pod("p"))) is None


def test_a_strategy_of_another_distribution_writes_through_the_agent_which_restores_it(tmp_path: Path) -> None:
    machine = ManagedNode(tmp_path, 1)
    machine.qos_manager.plugins = plugins(tmp_path, "Canary", "Ours")
    file = tmp_path / "cgroup/cpu" / LS / "cpu.shares"
    before = file.read_text()
    for _ in range(4):
        machine.run_cycle(node=1, ls=0.5, be=0.3)
    assert file.read_text() == "512"
    machine.slo(cpuBurstStrategy={"policy": "none"})
    machine.run_cycle(node=1, ls=0.5, be=0.3)
    burst = tmp_path / "cgroup/cpu" / LS / CID["ls"] / "cpu.cfs_burst_us"
    assert burst.read_text() == "200000", "of the plugin, as the node has no policy"
    machine.qos_manager.release()
    assert file.read_text() == before.strip()
