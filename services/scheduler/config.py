"""KubeSchedulerConfiguration: what operators write, read into profiles, or refused with the path and the reason.

Fields that only steer upstream's own machinery (leader election, client limits, parallelism) are accepted and have no effect; what
a configuration asks for and does not get is listed in `notes`. Anything unknown is refused: a typing error must not pass as a
setting.

Source: spec/api.md 4.3, spec/scheduler-core.md 1.1.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import msgspec
import yaml
from msgspec import field

from services.scheduler.framework import Plugin, Profile, Scorer
from services.scheduler.registry import BUILT_IN, ELSEWHERE, MULTI_POINT, PLUGINS
from services.scheduler.shipped import SHIPPED
from services.scheduler.state import ClusterView
from shared.errors import KoordError
from shared.events import Draft
from shared.events.log import ConfigRefused, ConfigTaken

API_VERSION = "kubescheduler.config.k8s.io/v1"
T = TypeVar("T")


class BadConfig(KoordError):
    """A configuration that is not taken over.

    Attributes:
        path: where in the text the fault is, as `profiles[0].plugins.filter.enabled[1].name`; empty for the whole.
        reason: what is wrong there and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


class Offered(NamedTuple):
    """A configuration that somebody offers; `source` is a file's path or a ConfigMap."""

    source: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal: the name that decisions give it."""
        return sha256(self.text.encode()).hexdigest()


class Configuration(NamedTuple):
    """A configuration as read.

    Attributes:
        profiles: schedulerName -> profile.
        notes: what it asks for and does not get, for people.
    """

    profiles: Mapping[str, Profile]
    notes: tuple[str, ...]


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class _PluginEntry(_Strict):
    name: str
    weight: int = 0


class _PluginSet(_Strict):
    enabled: list[_PluginEntry] | None = None
    disabled: list[_PluginEntry] | None = None


class _Plugins(_Strict):
    pre_enqueue: _PluginSet | None = None
    queue_sort: _PluginSet | None = None
    pre_filter: _PluginSet | None = None
    filter: _PluginSet | None = None
    post_filter: _PluginSet | None = None
    pre_score: _PluginSet | None = None
    score: _PluginSet | None = None
    reserve: _PluginSet | None = None
    permit: _PluginSet | None = None
    pre_bind: _PluginSet | None = None
    bind: _PluginSet | None = None
    post_bind: _PluginSet | None = None
    multi_point: _PluginSet | None = None


class _PluginConfig(_Strict):
    name: str
    args: dict[str, Any] | None = None


class _Profile(_Strict):
    scheduler_name: str = "default-scheduler"
    plugins: _Plugins | None = None
    plugin_config: list[_PluginConfig] | None = None
    percentage_of_nodes_to_score: int | None = None


class _Document(_Strict):
    api_version: str = ""
    kind: str = ""
    profiles: list[_Profile] | None = None
    # Accepted without effect: each steers a mechanism that works otherwise here.
    parallelism: int | None = None
    leader_election: dict[str, Any] | None = None
    client_connection: dict[str, Any] | None = None
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int | None = None
    pod_max_backoff_seconds: int | None = None
    delay_cache_until_active: bool | None = None
    extenders: list[Any] = field(default_factory=list)


@lru_cache(maxsize=8)
def read_config(text: str) -> Configuration:
    """Read a KubeSchedulerConfiguration, as YAML or JSON.

    Raises:
        BadConfig: it is not one, or names what does not exist; the path says where.
    """
    try:
        plain = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadConfig("", f"not YAML: {error}") from error
    if not isinstance(plain, dict):
        raise BadConfig("", f"a {type(plain).__name__}; give a KubeSchedulerConfiguration")
    document = _convert(plain, _Document, "")
    if (document.api_version, document.kind) != (API_VERSION, "KubeSchedulerConfiguration"):
        found = f"{document.api_version} {document.kind}"
        raise BadConfig("apiVersion", f"{found!r}; give apiVersion {API_VERSION} and kind KubeSchedulerConfiguration")
    if document.extenders:
        raise BadConfig("extenders", "this scheduler calls no extenders; remove them")
    if not document.profiles:
        raise BadConfig("profiles", "empty; give at least one profile")
    profiles: dict[str, Profile] = {}
    notes: list[str] = []
    for number, profile in enumerate(document.profiles):
        path = f"profiles[{number}]"
        if profile.scheduler_name in profiles:
            raise BadConfig(
                f"{path}.schedulerName", f"{profile.scheduler_name!r} is there already; give each profile its own"
            )
        profiles[profile.scheduler_name] = _read_profile(profile, path, notes)
    notes += _unused(document)
    return Configuration(profiles, tuple(dict.fromkeys(notes)))


def config_of(view: ClusterView) -> Configuration:
    """The configuration in force, which has been read before it was taken over; the shipped one before the first."""
    return read_config(view.config_text or SHIPPED)


def config_drafts(view: ClusterView, file: Offered | None) -> tuple[Draft, ...]:
    """Take over what is offered, if it is new: the file, else the ConfigMap, else the shipped profile.

    Returns:
        ConfigTaken, or ConfigRefused (the last good one stays in force), or nothing.
    """
    offered = file
    if offered is None and view.config_map is not None:
        offered = Offered("ConfigMap koordinator-system/koord-scheduler-config", view.config_map)
    shipped = Offered("shipped profile", SHIPPED)
    offered = offered or shipped
    if offered.digest in (view.config_digest, view.refused_digest):
        return ()
    try:
        read_config(offered.text)
    except BadConfig as error:
        refused = ConfigRefused(source=offered.source, digest=offered.digest, path=error.path, reason=error.reason)
        first = () if view.config_digest else (_taken(shipped),)
        return (*first, Draft(refused))
    return (_taken(offered),)


def _taken(offered: Offered) -> Draft:
    return Draft(ConfigTaken(source=offered.source, digest=offered.digest, text=offered.text))


def _read_profile(profile: _Profile, path: str, notes: list[str]) -> Profile:
    if not profile.scheduler_name:
        raise BadConfig(f"{path}.schedulerName", "empty; leave it out or give a name")
    sets = profile.plugins or _Plugins()
    for point, entries in _points(sets):
        _check_names(entries, f"{path}.plugins.{point}", profile.scheduler_name, notes)
    args = _read_args(profile, path, notes)
    multi = _multi_point(sets.multi_point)
    notes += [
        f"profile {profile.scheduler_name}: plugin {name} is not part of this release and is passed over"
        for name in multi
        if name in ELSEWHERE
    ]
    made: dict[str, Plugin] = {}

    def plugin(name: str) -> Plugin:
        if name not in made:
            where, given = args.get(name, (f"{path}.pluginConfig", {}))
            try:
                made[name] = PLUGINS[name].make(given, where)
            except BadConfig:
                raise
            except KoordError as error:
                raise BadConfig(where, str(error).removeprefix(f"{where}: ")) from error
        return made[name]

    for name in args:
        if name in PLUGINS:
            plugin(name)  # arguments are checked even where the plugin is not enabled
    filters = [plugin(name) for name in _at_point(sets.filter, multi) if name in PLUGINS and PLUGINS[name].filters]
    scorers = [
        Scorer(plugin(name), weight or 1)
        for name, weight in _at_point(sets.score, multi).items()
        if name in PLUGINS and PLUGINS[name].scores
    ]
    return Profile(profile.scheduler_name, filters, scorers)


def _read_args(profile: _Profile, path: str, notes: list[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Plugin -> where its arguments stand, and they; those of plugins without any are noted."""
    args: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, entry in enumerate(profile.plugin_config or ()):
        where = f"{path}.pluginConfig[{number}]"
        _check_name(entry.name, f"{where}.name")
        if entry.name in args:
            raise BadConfig(f"{where}.name", f"{entry.name} has arguments already; give them once")
        given = entry.args or {}
        kind = given.get("kind", f"{entry.name}Args")
        if kind != f"{entry.name}Args":
            raise BadConfig(f"{where}.args.kind", f"{kind!r}; the arguments of {entry.name} are {entry.name}Args")
        args[entry.name] = (f"{where}.args", given)
        if entry.name not in PLUGINS or not PLUGINS[entry.name].reads_args:
            notes.append(
                f"profile {profile.scheduler_name}: the arguments of {entry.name} have no effect in this release"
            )
    return args


def _multi_point(given: _PluginSet | None) -> dict[str, int]:
    """Plugins at every point that they implement, with their weights."""
    disabled = {entry.name for entry in (given.disabled if given else None) or ()}
    multi = {} if "*" in disabled else {name: w for name, w in MULTI_POINT.items() if name not in disabled}
    for entry in (given.enabled if given else None) or ():
        multi[entry.name] = entry.weight or multi.get(entry.name, 0)
    return multi


def _at_point(given: _PluginSet | None, multi: Mapping[str, int]) -> dict[str, int]:
    """Plugins at one point in their order, with weights.

    First those of the multi-point set that are listed here, as listed; then the rest of that set; then what else is listed.
    """
    enabled = {entry.name: entry.weight or 1 for entry in (given.enabled if given else None) or ()}
    disabled = {entry.name for entry in (given.disabled if given else None) or ()}
    listed = {name: weight for name, weight in enabled.items() if name in multi}
    rest = {
        name: w for name, w in multi.items() if name not in enabled and name not in disabled and "*" not in disabled
    }
    other = {name: weight for name, weight in enabled.items() if name not in multi}
    return {**listed, **rest, **other}


def _points(sets: _Plugins) -> Iterator[tuple[str, _PluginSet]]:
    for info in msgspec.structs.fields(_Plugins):
        entries = getattr(sets, info.name)
        if entries is not None:
            yield info.encode_name, entries


def _check_names(entries: _PluginSet, path: str, profile: str, notes: list[str]) -> None:
    for number, entry in enumerate(entries.enabled or ()):
        _check_name(entry.name, f"{path}.enabled[{number}].name")
        if entry.weight < 0:
            raise BadConfig(f"{path}.enabled[{number}].weight", f"{entry.weight}; give a whole number above 0")
        if entry.name in ELSEWHERE:
            notes.append(f"profile {profile}: plugin {entry.name} is not part of this release and is passed over")
    for number, entry in enumerate(entries.disabled or ()):
        if entry.name != "*":
            _check_name(entry.name, f"{path}.disabled[{number}].name")


def _check_name(name: str, path: str) -> None:
    if name not in PLUGINS and name not in ELSEWHERE and name not in BUILT_IN:
        known = ", ".join(sorted((*PLUGINS, *BUILT_IN)))
        raise BadConfig(path, f"there is no plugin {name!r}; this release has {known}")


def _unused(document: _Document) -> Iterator[str]:
    for name in ("percentage_of_nodes_to_score", "pod_initial_backoff_seconds", "pod_max_backoff_seconds"):
        if getattr(document, name) is not None:
            camel = next(info.encode_name for info in msgspec.structs.fields(_Document) if info.name == name)
            yield f"{camel} has no effect in this release"


def _convert(plain: Any, to: type[T], path: str) -> T:
    try:
        return msgspec.convert(plain, to)
    except msgspec.ValidationError as error:
        reason, _, at = str(error).partition(" - at `$")
        raise BadConfig((path + at.rstrip("`")).lstrip("."), reason) from error
