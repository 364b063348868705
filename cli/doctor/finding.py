"""Result of a check: a condition that holds, or a fault and its remedy."""

from typing import Literal

import msgspec

Severity = Literal["error", "warning", "note", "ok"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note", "ok")
"""The worst first."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the doctor's report.

    Attributes:
        severity: error: something does not work; warning: it will not, or not safely; note: good to know; ok: it holds.
        area: what was looked at: postgres, nats, credentials, services, followers, configuration, rbac, cluster,
            evictions, clock, disk, nodes.
        what: what was found, with the object's name.
        do: what to do; empty where nothing is to be done.
    """

    severity: Severity
    area: str
    what: str
    do: str = ""
