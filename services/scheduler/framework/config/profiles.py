"""Reads a KubeSchedulerConfiguration into profiles, or rejects it with the path and the reason.

Fields that only steer upstream's own machinery (leader election, client limits, parallelism) are accepted and have no
effect; `notes` lists the parts of a configuration that have no effect in this release. Unknown names are rejected: a
typing error must not pass as a setting.

Source: spec/api.md 4.3, spec/scheduler-core.md 1.1.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from services.scheduler.framework.config.checked_document import CheckedProfile, at_point, read_document
from services.scheduler.framework.config.config_schema import PluginSet
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.plugin_base import Plugin, make_plugin
from services.scheduler.framework.plugin_spec import Point
from services.scheduler.framework.post_filter import PostFilterPlugin
from services.scheduler.framework.profile import Profile, Scorer
from services.scheduler.framework.registry import Registry
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import component_config
from shared.domain.all_faults import Fault
from shared.domain.component_config import BadConfig
from shared.errors import KoordError


class Configuration(NamedTuple):
    """A configuration that has been read.

    Attributes:
        profiles: schedulerName -> profile.
        notes: the parts without effect in this release, as text.
    """

    profiles: Mapping[str, Profile]
    notes: tuple[str, ...]


@lru_cache(maxsize=8)
def read_config(text: str, registry: Registry) -> Configuration:
    """Reads a KubeSchedulerConfiguration, as YAML or JSON.

    Raises:
        BadConfig: it is none, or has an unknown name; the path locates it.
    """
    document = read_document(text, registry)
    profiles = {each.document.scheduler_name: _make_profile(each, registry) for each in document.profiles}
    return Configuration(profiles, document.notes)


def faults_of(text: str, registry: Registry) -> list[Fault]:
    """Returns all faults of a configuration; none of one that can be read."""
    return component_config.faults_of(text, lambda rest: read_config(rest, registry))


def config_of(view: SchedulerState, registry: Registry) -> Configuration:
    """The configuration in force; the default profile before the first."""
    return read_config(view.config_text or DEFAULT_PROFILE, registry)


def _make_profile(checked: CheckedProfile, registry: Registry) -> Profile:
    profile, path, sets, args, multi = checked
    made: dict[str, Plugin | PostFilterPlugin] = {}

    def make(name: str) -> Plugin | PostFilterPlugin:
        if name not in made:
            where, given = args.get(name, (f"{path}.pluginConfig", {}))
            try:
                made[name] = make_plugin(registry.specs[name], given, where)
            except BadConfig:
                raise
            except KoordError as error:
                raise BadConfig(where, str(error).removeprefix(f"{where}: ")) from error
        return made[name]

    def at(point: Point, given: PluginSet | None) -> dict[str, int]:
        """The plugins of this release that run at the point, with weights."""
        specs = registry.specs
        return {name: w for name, w in at_point(given, multi).items() if name in specs and point in specs[name].points}

    for name in args:
        if name in registry.specs:
            make(name)  # arguments are checked even where the plugin is not enabled
    filtering = (*at(Point.PRE_FILTER, sets.pre_filter), *at(Point.FILTER, sets.filter))
    filters = [plugin for name in dict.fromkeys(filtering) if isinstance(plugin := make(name), Plugin)]
    scorers = [
        Scorer(plugin, weight or 1)
        for name, weight in at(Point.SCORE, sets.score).items()
        if isinstance(plugin := make(name), Plugin)
    ]
    post_filters = [
        plugin for name in at(Point.POST_FILTER, sets.post_filter) if isinstance(plugin := make(name), PostFilterPlugin)
    ]
    pre_bind = [plugin for name in at(Point.PRE_BIND, sets.pre_bind) if isinstance(plugin := make(name), Plugin)]
    permit = [plugin for name in at(Point.PERMIT, sets.permit) if isinstance(plugin := make(name), Plugin)]
    return Profile(profile.scheduler_name, filters, scorers, post_filters, pre_bind, permit)
