"""Reads a DeschedulerConfiguration, or rejects it with the path and the reason.

Arguments of every plugin are checked here, also those that upstream checks only when it makes the plugin: a typing
error must not pass as a setting.

Source: spec/descheduler.md 1.1, spec/api.md 4.4.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from services.descheduler.configuration.config_schema import Document, PluginSet, PluginSets, ProfileDocument
from services.descheduler.configuration.configuration import Configuration, Profile
from services.descheduler.configuration.plugin_kinds import EVICT, FILTER, KINDS, MIGRATION_CONTROLLER
from services.descheduler.plugins.registry import REGISTRY
from shared.closest_name import did_you_mean
from shared.domain import component_config
from shared.domain.all_faults import Fault
from shared.domain.component_config import (
    BadConfig,
    PluginConfig,
    check_selector,
    converted,
    duration_from_zero,
    plain_document,
)

API_VERSION, KIND = "descheduler/v1alpha2", "DeschedulerConfiguration"
DEFAULT_PROFILE = "koord-descheduler"
"""Name of the only profile when it has none."""

DEFAULT_CONFIGURATION = f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
"""The configuration in force without a file and a ConfigMap: no plugin that selects pods."""

_DEFAULT_SETS: Mapping[str, tuple[str, ...]] = {EVICT: (MIGRATION_CONTROLLER,), FILTER: (MIGRATION_CONTROLLER,)}
_SMALLEST_PORT, _LARGEST_PORT = 1, 65_535


@lru_cache(maxsize=8)
def read_configuration(text: str) -> Configuration:
    """Reads a DeschedulerConfiguration, as YAML or JSON.

    Raises:
        BadConfig: it is none, or has an unknown name or an invalid value; the path locates it.
    """
    document = converted(plain_document(text, KIND), Document, "")
    if document.api_version != API_VERSION or document.kind != KIND:
        found = f"{document.api_version} {document.kind}"
        raise BadConfig("apiVersion", f"{found!r}; give apiVersion {API_VERSION} and kind {KIND}")
    for name in ("healthz_bind_address", "metrics_bind_address"):
        _check_address(getattr(document, name), "healthzBindAddress" if name[0] == "h" else "metricsBindAddress")
    check_selector(document.node_selector, "nodeSelector")
    listed = [ProfileDocument()] if document.profiles is None else document.profiles
    if not listed:
        raise BadConfig("profiles", "empty; leave it out for the default profile, or give at least one")
    notes: list[str] = []
    profiles: list[Profile] = []
    for number, profile in enumerate(listed):
        path = f"profiles[{number}]"
        name = profile.name or (DEFAULT_PROFILE if len(listed) == 1 else "")
        if not name:
            raise BadConfig(f"{path}.name", "empty; with several profiles each needs a name")
        if any(name == other.name for other in profiles):
            raise BadConfig(f"{path}.name", f"{name!r} is there already; give each profile its own")
        profiles.append(_profile(profile, name, path, notes))
    return Configuration(
        interval_ns=duration_from_zero(document.descheduling_interval, "deschedulingInterval"),
        dry_run=document.dry_run,
        node_selector=document.node_selector,
        max_per_node=document.max_no_of_pods_to_evict_per_node,
        max_per_namespace=document.max_no_of_pods_to_evict_per_namespace,
        max_total=document.max_no_of_pods_to_evict_total,
        profiles=tuple(profiles),
        notes=tuple(dict.fromkeys(notes)),
    )


def faults_of(text: str) -> list[Fault]:
    """Returns all faults of a configuration; none of one that can be read."""
    return component_config.faults_of(text, read_configuration)


def _profile(document: ProfileDocument, name: str, path: str, notes: list[str]) -> Profile:
    check_selector(document.node_selector, f"{path}.nodeSelector")
    given = document.plugins or PluginSets()
    sets = {kind: _enabled(kind, getattr(given, kind), f"{path}.plugins.{kind}") for kind in KINDS}
    if len(sets[EVICT]) != 1:
        raise BadConfig(f"{path}.plugins.evict", f"{len(sets[EVICT])} plugins are enabled; enable exactly one")
    configs = _plugin_configs(document.plugin_config or (), path)
    enabled = dict.fromkeys(plugin for kind in KINDS for plugin in sets[kind])
    args: dict[str, Any] = {}
    for plugin in dict.fromkeys((*configs, *enabled)):
        where, plain = configs.get(plugin, (f"{path}.plugins", {}))
        args[plugin] = REGISTRY[plugin].read_args(plain, where)
        if plugin in enabled:
            notes += [f"profile {name}: {plugin}: {note}" for note in getattr(args[plugin], "notes", ())]
    if MIGRATION_CONTROLLER not in sets[EVICT]:
        notes.append(
            f"profile {name}: {sets[EVICT][0]} holds no places and moves no pods here; its cases are dry runs. "
            f"Enable {MIGRATION_CONTROLLER} in the set {EVICT}, and plugins that protect pods in the set {FILTER}"
        )
        sets[EVICT] = ()
    return Profile(name, sets, {plugin: args[plugin] for plugin in enabled}, document.node_selector)


def _enabled(kind: str, given: PluginSet | None, path: str) -> tuple[str, ...]:
    """Returns the plugins of a set: defaults that are not disabled, then what else is enabled, in order."""
    given = given or PluginSet()
    for number, entry in enumerate(given.enabled):
        where = f"{path}.enabled[{number}].name"
        _check_name(entry.name, where)
        if kind not in REGISTRY[entry.name].kinds:
            kinds = " and ".join(REGISTRY[entry.name].kinds)
            raise BadConfig(where, f"{entry.name} is no plugin of the set {kind}; enable it in {kinds}")
        if any(entry.name == other.name for other in given.enabled[:number]):
            raise BadConfig(where, f"{entry.name} is enabled here already; name it once")
    disabled = {entry.name for entry in given.disabled}
    for number, entry in enumerate(given.disabled):
        if entry.name != "*":
            _check_name(entry.name, f"{path}.disabled[{number}].name")
    kept = () if "*" in disabled else [each for each in _DEFAULT_SETS.get(kind, ()) if each not in disabled]
    return tuple(dict.fromkeys((*kept, *(entry.name for entry in given.enabled))))


def _plugin_configs(given: Sequence[PluginConfig], path: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Returns plugin -> path of its arguments, and the arguments without `apiVersion` and `kind`."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, entry in enumerate(given):
        where = f"{path}.pluginConfig[{number}]"
        _check_name(entry.name, f"{where}.name")
        if entry.name in found:
            raise BadConfig(f"{where}.name", f"{entry.name} has arguments already; give them once")
        args = dict(entry.args or {})
        version, kind = args.pop("apiVersion", API_VERSION), args.pop("kind", f"{entry.name}Args")
        if version != API_VERSION:
            raise BadConfig(f"{where}.args.apiVersion", f"{version!r}; give {API_VERSION}")
        if kind != f"{entry.name}Args":
            raise BadConfig(f"{where}.args.kind", f"{kind!r}; the arguments of {entry.name} are {entry.name}Args")
        found[entry.name] = (f"{where}.args", args)
    return found


def _check_name(name: str, path: str) -> None:
    if name not in REGISTRY:
        known = did_you_mean(name, REGISTRY) or f"; there are {', '.join(REGISTRY)}"
        raise BadConfig(path, f"there is no plugin {name!r}{known}")


def _check_address(address: str | None, path: str) -> None:
    """Checks a bind address; a host alone gets upstream's port."""
    _, colon, port = (address or "").rpartition(":")
    if colon and not (port.isdecimal() and _SMALLEST_PORT <= int(port) <= _LARGEST_PORT):
        raise BadConfig(path, f"{address!r} has no port from 1 to 65535 after its last colon; write host:port")
