"""Applies a DeschedulerConfiguration that differs from the one in force, and records it."""

from services.descheduler.configuration.read_configuration import DEFAULT_CONFIGURATION, faults_of
from services.descheduler.service_manifest import CONFIG_MAP
from services.descheduler.settings import DEFAULT_SETTINGS, DecisionSettings
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain import offered_config
from shared.domain.offered_config import OfferedConfig
from shared.events import Draft


def config_drafts(
    state: DeschedulerState, file: OfferedConfig | None, settings: DecisionSettings = DEFAULT_SETTINGS
) -> list[Draft]:
    """Applies the file, else the ConfigMap, else the default configuration, if its text or the settings have changed."""
    default = OfferedConfig("default configuration", DEFAULT_CONFIGURATION, settings.recorded())
    return offered_config.config_drafts(state, file, CONFIG_MAP, default, faults_of)
