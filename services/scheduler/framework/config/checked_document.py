"""Reads a KubeSchedulerConfiguration as a checked document, and finds the parts of it that have no effect.

It makes no plugin, so that commands which show a configuration load no compiled code.

Source: spec/api.md 4.3, spec/scheduler-core.md 1.1.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from services.scheduler.framework.config.config_schema import Document, PluginSet, PluginSets, ProfileDocument
from services.scheduler.framework.registry import Registry
from shared.closest_name import did_you_mean
from shared.domain.component_config import BadConfig, converted, plain_document
from shared.errors import KoordError

GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
API_VERSIONS = (API_VERSION, f"{GROUP}/v1beta3", f"{GROUP}/v1beta2")
"""Old versions have the same shape and are read as v1, with v1's default weights."""


class CheckedProfile(NamedTuple):
    """A profile with known names.

    Attributes:
        document: as it was given.
        path: its place in the configuration.
        sets: its plugins by extension point.
        args: plugin -> path of its arguments, and the arguments.
        multi: plugins that are enabled at every point that they implement, with their weights.
    """

    document: ProfileDocument
    path: str
    sets: PluginSets
    args: dict[str, tuple[str, dict[str, Any]]]
    multi: dict[str, int]


class CheckedDocument(NamedTuple):
    """A configuration whose names are known; arguments of supported plugins are not checked yet.

    Attributes:
        profiles: in order.
        notes: the parts without effect in this release, as text.
    """

    profiles: tuple[CheckedProfile, ...]
    notes: tuple[str, ...]


def read_document(text: str, registry: Registry) -> CheckedDocument:
    """Reads a KubeSchedulerConfiguration, as YAML or JSON.

    Raises:
        BadConfig: it is none, or has an unknown name; the path locates it.
    """
    document = converted(plain_document(text, "KubeSchedulerConfiguration"), Document, "")
    if document.api_version not in API_VERSIONS or document.kind != "KubeSchedulerConfiguration":
        found = f"{document.api_version} {document.kind}"
        raise BadConfig("apiVersion", f"{found!r}; give apiVersion {API_VERSION} and kind KubeSchedulerConfiguration")
    first, most = document.pod_initial_backoff_seconds or 1, document.pod_max_backoff_seconds or 10
    if most < first:
        raise BadConfig("podMaxBackoffSeconds", f"{most}; give podInitialBackoffSeconds ({first}) or more")
    if document.extenders:
        raise BadConfig("extenders", "this scheduler calls no extenders; remove them")
    if not document.profiles:
        raise BadConfig("profiles", "empty; give at least one profile")
    profiles: list[CheckedProfile] = []
    notes: list[str] = []
    for number, profile in enumerate(document.profiles):
        path = f"profiles[{number}]"
        if any(profile.scheduler_name == other.document.scheduler_name for other in profiles):
            raise BadConfig(
                f"{path}.schedulerName", f"{profile.scheduler_name!r} is there already; give each profile its own"
            )
        profiles.append(_checked(profile, registry, path, notes))
    if document.api_version != API_VERSION:
        notes.append(f"apiVersion {document.api_version} is read as {API_VERSION}")
    notes += _unused(document)
    return CheckedDocument(tuple(profiles), tuple(dict.fromkeys(notes)))


def _checked(profile: ProfileDocument, registry: Registry, path: str, notes: list[str]) -> CheckedProfile:
    if not profile.scheduler_name:
        raise BadConfig(f"{path}.schedulerName", "empty; leave it out or give a name")
    if profile.percentage_of_nodes_to_score is not None:
        notes.append(f"profile {profile.scheduler_name}: percentageOfNodesToScore has no effect in this release")
    sets = profile.plugins or PluginSets()
    for point, entries in _points(sets):
        _check_names(entries, registry, f"{path}.plugins.{point}", profile.scheduler_name, notes)
    args = _read_args(profile, registry, path, notes)
    multi = _multi_point(sets.multi_point, registry)
    notes += [
        f"profile {profile.scheduler_name}: plugin {name} is not part of this release and is passed over"
        for name in multi
        if name in registry.unsupported
    ]
    return CheckedProfile(profile, path, sets, args, multi)


def _read_args(
    profile: ProfileDocument, registry: Registry, path: str, notes: list[str]
) -> dict[str, tuple[str, dict[str, Any]]]:
    """Plugin -> path of its arguments, and the arguments; a note for those of plugins without any."""
    args: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, entry in enumerate(profile.plugin_config or ()):
        where = f"{path}.pluginConfig[{number}]"
        _check_name(entry.name, registry, f"{where}.name")
        if entry.name in args:
            raise BadConfig(f"{where}.name", f"{entry.name} has arguments already; give them once")
        given = entry.args or {}
        version = given.get("apiVersion", API_VERSION)
        if version not in API_VERSIONS:
            raise BadConfig(f"{where}.args.apiVersion", f"{version!r}; give one of {', '.join(API_VERSIONS)}")
        kind = given.get("kind", f"{entry.name}Args")
        if kind != f"{entry.name}Args":
            raise BadConfig(f"{where}.args.kind", f"{kind!r}; the arguments of {entry.name} are {entry.name}Args")
        args[entry.name] = (f"{where}.args", given)
        if check := registry.unsupported.get(entry.name):
            try:
                check(given, f"{where}.args")
            except KoordError as error:
                raise BadConfig(f"{where}.args", str(error).removeprefix(f"{where}.args: ")) from error
        spec = registry.specs.get(entry.name)
        if spec is None or spec.read_args is None or not given.keys().isdisjoint(spec.unused_args):
            notes.append(
                f"profile {profile.scheduler_name}: the arguments of {entry.name} have no effect in this release"
            )
    return args


def _multi_point(given: PluginSet | None, registry: Registry) -> dict[str, int]:
    """Plugins that are enabled at every point that they implement, with their weights."""
    disabled = {entry.name for entry in (given.disabled if given else None) or ()}
    multi = {} if "*" in disabled else {name: w for name, w in registry.defaults.items() if name not in disabled}
    for entry in (given.enabled if given else None) or ():
        multi[entry.name] = entry.weight or multi.get(entry.name, 0)
    return multi


def _points(sets: PluginSets) -> Iterator[tuple[str, PluginSet]]:
    for info in msgspec.structs.fields(PluginSets):
        entries = getattr(sets, info.name)
        if entries is not None:
            yield info.encode_name, entries


def _check_names(entries: PluginSet, registry: Registry, path: str, profile: str, notes: list[str]) -> None:
    names: set[str] = set()
    for number, entry in enumerate(entries.enabled or ()):
        _check_name(entry.name, registry, f"{path}.enabled[{number}].name")
        if entry.weight < 0:
            raise BadConfig(f"{path}.enabled[{number}].weight", f"{entry.weight}; give a whole number above 0")
        if entry.name in names:
            raise BadConfig(f"{path}.enabled[{number}].name", f"{entry.name} is enabled here already; name it once")
        names.add(entry.name)
        if entry.name in registry.unsupported:
            notes.append(f"profile {profile}: plugin {entry.name} is not part of this release and is passed over")
        elif entry.name in registry.retired:
            notes.append(f"profile {profile}: plugin {entry.name} does not exist any more and is passed over")
    for number, entry in enumerate(entries.disabled or ()):
        if entry.name != "*":
            _check_name(entry.name, registry, f"{path}.disabled[{number}].name")


def _check_name(name: str, registry: Registry, path: str) -> None:
    if not registry.has(name):
        close = did_you_mean(name, (*registry.names(), *registry.unsupported))
        known = close or f"; this release has {', '.join(registry.names())}"
        raise BadConfig(path, f"there is no plugin {name!r}{known}")


def _unused(document: Document) -> Iterator[str]:
    for name in ("percentage_of_nodes_to_score", "pod_initial_backoff_seconds", "pod_max_backoff_seconds"):
        if getattr(document, name) is not None:
            camel = next(info.encode_name for info in msgspec.structs.fields(Document) if info.name == name)
            yield f"{camel} has no effect in this release"


def at_point(given: PluginSet | None, multi: Mapping[str, int]) -> dict[str, int]:
    """Returns the plugins at one point in their order, with weights.

    First those of the multi-point set that are listed here, as listed; then the rest of that set; then what else is
    listed.
    """
    enabled = {entry.name: entry.weight or 1 for entry in (given.enabled if given else None) or ()}
    disabled = {entry.name for entry in (given.disabled if given else None) or ()}
    listed = {name: weight for name, weight in enabled.items() if name in multi}
    rest = {
        name: w for name, w in multi.items() if name not in enabled and name not in disabled and "*" not in disabled
    }
    other = {name: weight for name, weight in enabled.items() if name not in multi}
    return {**listed, **rest, **other}
