"""The anomaly detectors that the State keeps for a plugin."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.events.descheduling import DetectorRecord


class DetectorRecords(NamedTuple):
    """The detectors of a plugin: node -> detector of its usage, and of that of its prod pods.

    Attributes:
        unrelieved: node of high usage -> why no pod leaves it; of the first nodes alone.
    """

    node: Mapping[str, DetectorRecord]
    prod: Mapping[str, DetectorRecord]
    unrelieved: Mapping[str, str] = {}


NO_RECORDS = DetectorRecords({}, {})
