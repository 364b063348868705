"""Settings of the process that shape decisions: recorded with the configuration, so that a cycle can be decided
again.
"""

from collections.abc import Mapping

import msgspec

from shared.domain.offered_config import RecordedSettings


class DecisionSettings(RecordedSettings, frozen=True):
    """The part of SchedulerSettings that ConfigApplied records.

    Attributes:
        batch_size: pods a cycle takes at most.
        shadow_scheduler: the scheduler whose bindings are compared, empty for none.
        extender_profile: the profile that evaluates pods of other schedulers, empty for the one of their scheduler's
            name.
        believes_annotations: allocations in the annotations of pods that another scheduler placed count.
        by_sub_priority: pods of equal priority are in the order of their sub-priority.
        backfill: pods pass a waiting gang only where its planned start does not move.
        open_ports: addresses at which every caller may request bindings and evictions, separated by spaces: decisions
            may then be those of anybody who reaches them. `koord doctor` reads it.
        feature_gates: the feature gates that are on, as `Name=true,...`.
    """

    batch_size: int = 256
    shadow_scheduler: str = ""
    extender_profile: str = ""
    believes_annotations: bool = False
    by_sub_priority: bool = True
    open_ports: str = ""
    feature_gates: str = ""
    backfill: bool = False


def in_force(recorded: Mapping[str, str]) -> DecisionSettings:
    """The values of a ConfigApplied; a field that it lacks has its default."""
    return msgspec.convert(recorded, DecisionSettings, strict=False)
