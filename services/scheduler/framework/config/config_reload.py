"""Applies a configuration that differs from the one in force, and records it."""

from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

import msgspec

from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from services.scheduler.framework.config.profiles import faults_of
from services.scheduler.framework.registry import Registry
from services.scheduler.service_manifest import CONFIG_MAP
from services.scheduler.state.scheduler_state import SchedulerState
from shared.events import Draft
from shared.events.log import ConfigApplied, ConfigRejected

NO_SETTINGS: Mapping[str, str] = {}


class OfferedConfig(NamedTuple):
    """A configuration that is not in force yet.

    Attributes:
        source: a file's path or a ConfigMap.
        text: KubeSchedulerConfiguration.
        settings: those of the process that shape decisions (`DecisionSettings.recorded`).
    """

    source: str
    text: str
    settings: Mapping[str, str] = NO_SETTINGS

    @property
    def digest(self) -> str:
        """SHA-256 of the text, and of the settings if there are any, hexadecimal: decisions name it."""
        settings = b"\n" + msgspec.json.encode(self.settings, order="sorted") if self.settings else b""
        return sha256(self.text.encode() + settings).hexdigest()


def config_drafts(
    view: SchedulerState, file: OfferedConfig | None, registry: Registry, settings: Mapping[str, str] = NO_SETTINGS
) -> tuple[Draft, ...]:
    """Applies the file, else the ConfigMap, else the default profile, if its text or the settings have changed.

    Returns:
        ConfigApplied, or a ConfigRejected for each fault (the last good one stays in force, its settings too), or
        nothing.
    """
    default = OfferedConfig("default profile", DEFAULT_PROFILE, settings)
    offered = default
    if file is not None:
        offered = file._replace(settings=settings)
    elif view.config_map is not None:
        offered = OfferedConfig(f"ConfigMap {CONFIG_MAP}", view.config_map, settings)
    if offered.digest == view.refused_digest or (offered.digest == view.config_digest and not view.refused_digest):
        return ()
    # A rejected text that was replaced by the one in force is applied again: that ends the rejection in the record.
    if faults := faults_of(offered.text, registry):
        first = () if view.config_digest else (_applied(default),)
        rejected = (
            ConfigRejected(source=offered.source, digest=offered.digest, path=fault.path, reason=fault.reason)
            for fault in faults
        )
        return (*first, *map(Draft, rejected))
    return (_applied(offered),)


def _applied(offered: OfferedConfig) -> Draft:
    return Draft(
        ConfigApplied(source=offered.source, digest=offered.digest, text=offered.text, settings=dict(offered.settings))
    )
