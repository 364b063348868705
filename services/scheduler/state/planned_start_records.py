"""Planned starts of units that wait, as the scheduler recorded them."""

from typing import NamedTuple


class UnitKey(NamedTuple):
    """A unit of several pods, by the profile and the plugin that group them, and its name there."""

    scheduler: str
    plugin: str
    unit: str


class PlannedStart(NamedTuple):
    """A planned start.

    Attributes:
        seq: in `scheduling`, of its UnitStartPlanned.
        nodes, waits_for, starts_ns: as in UnitStartPlanned.
    """

    seq: int
    nodes: dict[str, str]
    waits_for: tuple[str, ...]
    starts_ns: int
