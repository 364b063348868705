"""Applies a configuration that differs from the one in force, and records it."""

from hashlib import sha256
from typing import NamedTuple

from services.descheduler.configuration.read_configuration import DEFAULT_CONFIGURATION, faults_of
from services.descheduler.service_manifest import CONFIG_MAP
from services.descheduler.state.descheduler_state import DeschedulerState
from shared.domain.config_rejection import SOURCE
from shared.events import Draft
from shared.events.log import ConfigApplied, ConfigRejected


class OfferedConfig(NamedTuple):
    """A configuration that is not in force yet: a file's path or a ConfigMap, and DeschedulerConfiguration."""

    source: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, hexadecimal: decisions name it."""
        return sha256(self.text.encode()).hexdigest()


DEFAULT = OfferedConfig("default configuration", DEFAULT_CONFIGURATION)


def config_drafts(state: DeschedulerState, file: OfferedConfig | None) -> list[Draft]:
    """Applies the file, else the ConfigMap, else the default configuration, if its text has changed.

    Returns:
        ConfigApplied, or a ConfigRejected for each fault (the last good one stays in force), or nothing.
    """
    offered = DEFAULT
    if file is not None:
        offered = file
    elif state.config_map is not None:
        offered = OfferedConfig(f"{SOURCE}{CONFIG_MAP}", state.config_map)
    if offered.digest == state.refused_digest or (offered.digest == state.config_digest and not state.refused_digest):
        return []
    # A rejected text that was replaced by the one in force is applied again: that ends the rejection in the record.
    if faults := faults_of(offered.text):
        first = [] if state.config_digest else [_applied(DEFAULT)]
        rejected = (
            ConfigRejected(source=offered.source, digest=offered.digest, path=fault.path, reason=fault.reason)
            for fault in faults
        )
        return [*first, *map(Draft, rejected)]
    return [_applied(offered)]


def _applied(offered: OfferedConfig) -> Draft:
    return Draft(ConfigApplied(source=offered.source, digest=offered.digest, text=offered.text))
