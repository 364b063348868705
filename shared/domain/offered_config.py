"""Applies a configuration that differs from the one in force, and records it with the settings of the process."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec

from shared.domain.all_faults import Fault
from shared.domain.config_rejection import SOURCE
from shared.events import Draft
from shared.events.log import ConfigApplied, ConfigRejected
from shared.kube.instants import SECOND

NO_SETTINGS: Mapping[str, str] = {}


class RecordedSettings(msgspec.Struct, frozen=True):
    """Base of the settings of a process that shape decisions: ConfigApplied records them, and decisions read them from
    there, not from the environment.
    """

    def recorded(self) -> dict[str, str]:
        """Field -> value as text, for ConfigApplied."""
        return {name: str(value) for name, value in msgspec.structs.asdict(self).items()}


class OfferedConfig(NamedTuple):
    """A configuration that is not in force yet.

    Attributes:
        source: a file's path or a ConfigMap.
        text: the document.
        settings: those of the process that shape decisions (`RecordedSettings.recorded`).
    """

    source: str
    text: str
    settings: Mapping[str, str] = NO_SETTINGS

    @property
    def digest(self) -> str:
        """SHA-256 of the text, and of the settings if there are any, hexadecimal: decisions name it."""
        settings = b"\n" + msgspec.json.encode(self.settings, order="sorted") if self.settings else b""
        return sha256(self.text.encode() + settings).hexdigest()


class ConfigState(Protocol):
    """The part of a State that keeps configurations.

    Attributes:
        config_map: the text in the service's ConfigMap; None without one.
        config_map_fault: why a ConfigMap that exists has no text that is read; else empty.
        config_digest, refused_digest: of the newest ConfigApplied, and of a ConfigRejected behind it; else empty.
    """

    config_map: str | None
    config_map_fault: str
    config_digest: str
    refused_digest: str


class ListedState(Protocol):
    """The part of a State that shows whether its log holds the whole cluster.

    Attributes:
        listed: the gateway has listed the whole cluster once.
        config_digest: of the newest ConfigApplied; empty before.
    """

    listed: bool
    config_digest: str


def is_settled(state: ListedState, running_ns: int, debounce_s: float) -> bool:
    """Reports whether a missing ConfigMap means that there is none: before the log holds the whole cluster it may only
    not have been read.

    Args:
        running_ns: time since the start. debounce_s: after so long nobody waits for a full listing.
    """
    return state.listed or bool(state.config_digest) or running_ns > debounce_s * SECOND


def config_drafts(
    state: ConfigState,
    file: OfferedConfig | None,
    config_map: str,
    default: OfferedConfig,
    faults_of: Callable[[str], Sequence[Fault]],
) -> list[Draft]:
    """Applies the file, else the ConfigMap, else the default, if its text or the settings have changed.

    Args:
        file: without settings; all have those of `default`.
        config_map: `namespace/name` of the ConfigMap.
        faults_of: the faults of a text; none of one that can be used.

    Returns:
        ConfigApplied, or a ConfigRejected for each fault (the last good one stays in force, its settings too), or
        nothing.
    """
    offered, fault_of_map = default, ""
    if file is not None:
        offered = file._replace(settings=default.settings)
    elif state.config_map is not None or state.config_map_fault:
        fault_of_map = state.config_map_fault
        offered = OfferedConfig(f"{SOURCE}{config_map}", state.config_map or fault_of_map, default.settings)
    if offered.digest == state.refused_digest or (offered.digest == state.config_digest and not state.refused_digest):
        return []
    # A rejected text that was replaced by the one in force is applied again: that ends the rejection in the record.
    if faults := [Fault("data", fault_of_map)] if fault_of_map else faults_of(offered.text):
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
