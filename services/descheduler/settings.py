"""The settings of the descheduler: `KOORD_DESCHEDULER_<FIELD>`; `koord run descheduler --help` prints this table."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from shared.domain.offered_config import RecordedSettings
from shared.settings import Settings


class DecisionSettings(RecordedSettings, frozen=True):
    """The part of DeschedulerSettings that ConfigApplied records."""

    repeat_after_s: float = 1_800.0
    source_after_s: float = 300.0
    without_destination: bool = False
    step_pods_per_node: int = 2


DEFAULT_SETTINGS = DecisionSettings()


def in_force(recorded: Mapping[str, str]) -> DecisionSettings:
    """The values of a ConfigApplied; a field that it lacks has its default."""
    return msgspec.convert(recorded, DecisionSettings, strict=False)


class DeschedulerSettings(Settings, frozen=True, kw_only=True):
    """Settings of the process; profiles, plugins and the interval of cycles are in the configuration."""

    config: Annotated[
        str,
        Meta(
            description="DeschedulerConfiguration file; without one, ConfigMap koord-descheduler-config, else no plugin runs"
        ),
    ] = ""
    config_interval_s: Annotated[
        float, Meta(gt=0, description="seconds between two reads of the configuration file")
    ] = 5.0
    repeat_after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=21_600,
            description="a pod is not moved again for one cause, nor returns to the node it left, for this long",
        ),
    ] = 1_800.0
    source_after_s: Annotated[
        float, Meta(ge=0, le=21_600, description="a node that received pods is no source for this long")
    ] = 300.0
    without_destination: Annotated[
        bool, Meta(description="move pods for which the scheduler finds no other node; never do this in production")
    ] = False
    step_pods_per_node: Annotated[
        int,
        Meta(ge=1, description="pods of a node that leave at once; more of them once the measured effect has followed"),
    ] = 2
    destinations_timeout_s: Annotated[
        float, Meta(gt=0, description="how long a cycle waits for the scheduler's answer; without one no pod moves")
    ] = 5.0
    unit_moves_timeout_s: Annotated[
        float,
        Meta(
            gt=0, description="how long a cycle waits for the moves that admit a unit; without an answer no pod moves"
        ),
    ] = 5.0
    debounce_s: Annotated[
        float,
        Meta(ge=0, description="without a full listing of the cluster, nothing is decided for this long after a start"),
    ] = 5.0

    def decision_settings(self) -> DecisionSettings:
        """The part that shapes decisions."""
        return DecisionSettings(
            self.repeat_after_s, self.source_after_s, self.without_destination, self.step_pods_per_node
        )
