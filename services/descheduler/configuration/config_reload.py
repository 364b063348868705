"""Applies a configuration that differs from the one in force, and records it."""

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from services.descheduler.configuration.read_configuration import DEFAULT_CONFIGURATION, faults_of
from services.descheduler.service_manifest import CONFIG_MAP
from services.descheduler.settings import DEFAULT_SETTINGS, DecisionSettings
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain.config_rejection import SOURCE
from shared.events import Draft
from shared.events.log import ConfigApplied, ConfigRejected


class OfferedConfig(NamedTuple):
    """A configuration that is not in force yet.

    Attributes:
        source: a file's path or a ConfigMap.
        text: DeschedulerConfiguration.
        settings: those of the process that shape decisions (`DecisionSettings.recorded`).
    """

    source: str
    text: str
    settings: Mapping[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the text and the settings, hexadecimal: decisions name it."""
        return sha256(self.text.encode() + b"\n" + msgspec.json.encode(self.settings, order="sorted")).hexdigest()


def config_drafts(
    state: DeschedulerState, file: tuple[str, str] | None, settings: DecisionSettings = DEFAULT_SETTINGS
) -> list[Draft]:
    """Applies the file, else the ConfigMap, else the default configuration, if its text or the settings have changed.

    Args:
        file: its source and its text.

    Returns:
        ConfigApplied, or a ConfigRejected for each fault (the last good one stays in force), or nothing.
    """
    recorded = settings.recorded()
    default = OfferedConfig("default configuration", DEFAULT_CONFIGURATION, recorded)
    offered = default
    if file is not None:
        offered = OfferedConfig(*file, recorded)
    elif state.config_map is not None:
        offered = OfferedConfig(f"{SOURCE}{CONFIG_MAP}", state.config_map, recorded)
    if offered.digest == state.refused_digest or (offered.digest == state.config_digest and not state.refused_digest):
        return []
    # A rejected text that was replaced by the one in force is applied again: that ends the rejection in the record.
    if faults := faults_of(offered.text):
        first = [] if state.config_digest else [_applied(default)]
        rejected = (
            ConfigRejected(source=offered.source, digest=offered.digest, path=fault.path, reason=fault.reason)
            for fault in faults
        )
        return [*first, *map(Draft, rejected)]
    return [_applied(offered)]


def _applied(offered: OfferedConfig) -> Draft:
    return Draft(
        ConfigApplied(source=offered.source, digest=offered.digest, text=offered.text, settings=dict(offered.settings))
    )
