"""Usage of cache and memory bandwidth by resctrl group, from the processor's counters.

Source: spec/node-agent.md 1.2 (Resctrl).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LLC = "llc_occupancy"
BANDWIDTH = ("mbm_local_bytes", "mbm_total_bytes")


class CacheUse(NamedTuple):
    """Usage of one cache by one group.

    Attributes:
        kind: `llc` in bytes now, or `mbm_local_bytes` or `mbm_total_bytes` so far.
    """

    group: str
    cache: int
    kind: str
    value: int


def cache_usage(resctrl: Path, groups: Iterable[str]) -> list[CacheUse]:
    """Returns the usage of the groups.

    Values that the processor does not count ("Unavailable", or no file) are absent.
    """
    found = []
    for group in groups:
        try:
            folders = sorted((resctrl / group / "mon_data").iterdir())
        except OSError:
            continue
        for folder in folders:
            parts = folder.name.split("_")
            if len(parts) != 3 or parts[:2] != ["mon", "L3"] or not parts[2].isdigit():
                continue
            for file in (LLC, *BANDWIDTH):
                kind = "llc" if file == LLC else file
                try:
                    found.append(CacheUse(group, int(parts[2]), kind, int((folder / file).read_text())))
                except (OSError, ValueError):
                    continue
    return found
