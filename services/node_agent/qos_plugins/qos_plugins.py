"""The QoS plugins that are installed and switched on. A plugin that fails is logged, and the agent goes on without it.

Source: spec/node-agent.md 3.13.
"""

import logging
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, get_args

import msgspec

from services.node_agent.qos_plugins.plugin_interface import (
    POD_POLICIES,
    STRATEGIES,
    Configurable,
    PodPolicyPlugin,
    Policy,
    StrategyInputs,
    StrategyPlugin,
)
from shared.errors import KoordError
from shared.kube.pod import Pod

log = logging.getLogger(__name__)

CONFIG_KEY = "qos-plugin-extra-configs"
ANNOTATIONS: Mapping[Policy, str] = {"CPUBurst": "koordinator.sh/cpuBurst", "MemoryQOS": "koordinator.sh/memoryQOS"}


class BadPlugin(KoordError):
    """A plugin in the settings that is not installed, or cannot be loaded."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"KOORD_NODE_AGENT_QOS_EXTENSION_PLUGINS: {name} {reason}")


def switched_on(text: str) -> tuple[str, ...]:
    """Returns the plugins that a setting switches on: `CanaryBurst=true,OurStrategy=false`.

    Raises:
        BadPlugin: a part is not NAME=true or NAME=false.
    """
    names = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if not name or value not in {"true", "false"}:
            raise BadPlugin(repr(part), "is not NAME=true or NAME=false")
        if value == "true":
            names.append(name)
    return tuple(names)


class QosPlugins:
    """The plugins of one agent, and their configuration from a mounted ConfigMap."""

    def __init__(
        self, policies: Mapping[str, PodPolicyPlugin], strategies: Mapping[str, StrategyPlugin], config_folder: Path
    ) -> None:
        self._policies, self._strategies = dict(policies), dict(strategies)
        self._file = config_folder / CONFIG_KEY
        self._text: str | None = None
        self._logged: set[str] = set()
        for name, plugin in (*policies.items(), *strategies.items()):
            self._configure(name, plugin, None)

    @classmethod
    def load(
        cls, names: Iterable[str], config_folder: Path, installed: Iterable[EntryPoint] | None = None
    ) -> "QosPlugins":
        """Loads plugins by the names of their entry points.

        Raises:
            BadPlugin: none has the name, or it cannot be loaded.
        """
        if installed is None:
            installed = (*entry_points(group=POD_POLICIES), *entry_points(group=STRATEGIES))
        known = {(each.group, each.name): each for each in installed}
        found: dict[str, dict[str, Any]] = {POD_POLICIES: {}, STRATEGIES: {}}
        for name in names:
            points = [(group, known[group, name]) for group in found if (group, name) in known]
            if not points:
                others = ", ".join(sorted({each for _, each in known})) or "none"
                raise BadPlugin(name, f"is not installed; installed are: {others}")
            for group, point in points:
                try:
                    found[group][name] = point.load()()
                except Exception as error:  # whatever another distribution raises
                    raise BadPlugin(name, f"cannot be loaded: {type(error).__name__}: {error}") from error
        return cls(found[POD_POLICIES], found[STRATEGIES], config_folder)

    def refresh_config(self) -> None:
        """Configures the plugins again when the ConfigMap has changed; an invalid text leaves them as they were."""
        try:
            text = self._file.read_text()
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            self._warn(f"{self._file} cannot be read: {error}")
            return
        if text == self._text:
            return
        self._text = text
        try:
            configs = msgspec.json.decode(text, type=dict[str, Any]) if text.strip() else {}
        except msgspec.MsgspecError as error:
            self._warn(f"{CONFIG_KEY} is no JSON object by plugin, the last one stays in force: {error}")
            return
        for name, plugin in (*self._policies.items(), *self._strategies.items()):
            self._configure(name, plugin, configs.get(name))

    def with_policies(self, pod: Pod) -> Pod:
        """Returns a pod with the annotations that plugins give it in place of its owner."""
        for policy in get_args(Policy):
            annotation = ANNOTATIONS[policy]
            if annotation in (pod.metadata.annotations or {}):
                continue
            for name, plugin in list(self._policies.items()):
                try:
                    given = plugin.policy(pod, policy)
                    text = None if given is None else msgspec.json.encode(given).decode()
                except Exception as error:  # noqa: BLE001  whatever another distribution raises
                    self._end(self._policies, name, error)
                    continue
                if text is not None:
                    annotations = {**(pod.metadata.annotations or {}), annotation: text}
                    pod = msgspec.structs.replace(
                        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations)
                    )
                    break
        return pod

    def run_cycle(self, inputs: StrategyInputs) -> None:
        """Runs the strategies."""
        for name, plugin in list(self._strategies.items()):
            try:
                plugin.run_cycle(inputs)
            except Exception as error:  # noqa: BLE001  whatever another distribution raises
                self._end(self._strategies, name, error)

    def _configure(self, name: str, plugin: Configurable, config: Any) -> None:
        try:
            plugin.configure(config)
        except Exception as error:  # noqa: BLE001  whatever another distribution raises
            self._warn(f"plugin {name} does not take its configuration: {type(error).__name__}: {error}")

    def _end(self, plugins: dict[str, Any], name: str, error: Exception) -> None:
        """Leaves a plugin out from now on: one that fails each second would fill the log and the node."""
        del plugins[name]
        log.error(f"plugin {name} has failed and is left out until the agent restarts", exc_info=error)

    def _warn(self, text: str) -> None:
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text)
