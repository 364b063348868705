"""KubeSchedulerConfiguration, read with the plugins of this release."""

from collections.abc import Mapping

from services.scheduler.framework.config import profiles
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.config.profiles import Configuration
from services.scheduler.plugins.registry import REGISTRY
from services.scheduler.service_manifest import CONFIG_MAP
from services.scheduler.state.scheduler_state import SchedulerState
from shared.domain import offered_config
from shared.domain.offered_config import NO_SETTINGS, OfferedConfig
from shared.events import Draft


def read_config(text: str) -> Configuration:
    """Reads a KubeSchedulerConfiguration, as YAML or JSON.

    Raises:
        BadConfig: it is none, or names an unknown plugin or field; the path locates it.
    """
    return profiles.read_config(text, REGISTRY)


def config_of(view: SchedulerState) -> Configuration:
    """The configuration in force, the default profile before the first."""
    return profiles.config_of(view, REGISTRY)


def config_drafts(
    view: SchedulerState, file: OfferedConfig | None, settings: Mapping[str, str] = NO_SETTINGS
) -> tuple[Draft, ...]:
    """Applies the file, else the ConfigMap, else the default profile, if its text or the settings have changed."""
    default = OfferedConfig("default profile", DEFAULT_PROFILE, settings)
    drafts = offered_config.config_drafts(
        view, file, CONFIG_MAP, default, lambda text: profiles.faults_of(text, REGISTRY)
    )
    return tuple(drafts)
