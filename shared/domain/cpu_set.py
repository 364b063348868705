"""Sets of logical CPUs in the kernel's list notation: `0-3,8`.

Source: upstream pkg/util/cpuset; spec/scheduler-core.md 4.9.
"""

import re
from collections.abc import Iterable
from itertools import pairwise

from shared.errors import KoordError

_NUMBER = re.compile(r"\+?[0-9]{1,19}").fullmatch
_LARGEST = 2**63 - 1
_LAST_OF_RANGE = 4096
"""A range may not end above this, as upstream has it: a short text cannot stand for a billion CPUs. A single CPU may have any number."""


class BadCpuList(KoordError):
    """A text that is not a list of CPUs."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not a list of CPUs; give numbers and ranges, such as 0-3,8")


def parse_cpus(text: str) -> frozenset[int]:
    """Parses a list of CPUs; the empty text is the empty set, and so is a range that ends before it begins.

    Raises:
        BadCpuList: a part is neither a number nor a range, or a range ends above 4096.
    """
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        if not _NUMBER(first) or int(first) > _LARGEST or (dash and not _NUMBER(last)):
            raise BadCpuList(text)
        if not dash:
            cpus.add(int(first))
        elif int(last) > _LAST_OF_RANGE:
            raise BadCpuList(text)
        else:
            cpus.update(range(int(first), int(last) + 1))
    return frozenset(cpus)


def cpu_list(cpus: Iterable[int]) -> str:
    """The shortest list of a set that `parse_cpus` reads: ascending, neighbours joined to ranges that end at 4096 at most."""
    ordered = sorted(set(cpus))
    if not ordered:
        return ""
    gaps = [(before, after) for before, after in pairwise(ordered) if after != before + 1 or after > _LAST_OF_RANGE]
    starts = [ordered[0], *(after for _, after in gaps)]
    ends = [*(before for before, _ in gaps), ordered[-1]]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
