"""The usage of a node's pods as columns of integers, since an object for each of a million pods takes too much memory.

The keys are the texts of the pods themselves (see `PodsOnNodes.with_shared_keys`), so that a pod takes 25 bytes of a
report.
"""

import struct
from collections.abc import Mapping, Sequence

import msgspec

from shared.domain.cpu_memory import Amount
from shared.kube.quantity import NANO

PRIORITIES = ("", "koord-prod", "koord-mid", "koord-batch", "koord-free")
"""Classes by the number that stands for them in a column."""

PodUsage = tuple[int, int, str]
"""The usage of one pod in nano-cores and nano-bytes, and its class in the report."""

Column = bytes | tuple[int, ...]
"""Amounts by pod: little-endian 64-bit integers in the unit of the column; in nanos as they are if one does not fit."""

_CPU_UNIT, _MEMORY_UNIT = 1, NANO  # nano-bytes exceed 64 bits from 9 GiB on, so memory is in bytes
_NUMBERS = {priority: number for number, priority in enumerate(PRIORITIES)}


class PodUsageColumns(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The usage of the pods in a report.

    Attributes:
        keys: `namespace/name` of each pod, once.
        cpu: in nano-cores.
        memory: in bytes.
        priorities: the number of each pod's class in PRIORITIES; a class that is not there counts as none.
    """

    keys: tuple[str, ...] = ()
    cpu: Column = b""
    memory: Column = b""
    priorities: bytes = b""

    def get(self, key: str) -> Amount | None:
        """Returns the usage of a pod; None when the report does not name it."""
        if key not in self.keys:
            return None
        position = self.keys.index(key)
        return Amount(_amount(self.cpu, position, _CPU_UNIT), _amount(self.memory, position, _MEMORY_UNIT))

    def by_key(self) -> dict[str, PodUsage]:
        """Returns the usage of each pod."""
        cpu, memory = _amounts(self.cpu, _CPU_UNIT), _amounts(self.memory, _MEMORY_UNIT)
        priorities = map(PRIORITIES.__getitem__, self.priorities)
        return dict(zip(self.keys, zip(cpu, memory, priorities, strict=True), strict=True))


NO_PODS = PodUsageColumns()
"""The usage in a report that names no pod."""


def pod_usage_columns(usages: Mapping[str, PodUsage]) -> PodUsageColumns:
    """Converts the usage of pods by `namespace/name`."""
    if not usages:
        return NO_PODS
    cpu, memory, priorities = zip(*usages.values(), strict=True)
    return PodUsageColumns(
        tuple(usages),
        _column(cpu, _CPU_UNIT),
        _column(memory, _MEMORY_UNIT),
        bytes(_NUMBERS.get(priority, 0) for priority in priorities),
    )


def _column(nanos: tuple[int, ...], unit: int) -> Column:
    units = nanos if unit == 1 else [each // unit for each in nanos]
    if unit != 1 and any(each % unit for each in nanos):
        return nanos
    try:
        return struct.pack(f"<{len(nanos)}q", *units)
    except struct.error:
        return nanos


def _amounts(column: Column, unit: int) -> Sequence[int]:
    if isinstance(column, tuple):
        return column
    amounts = struct.unpack(f"<{len(column) // 8}q", column)
    return amounts if unit == 1 else [each * unit for each in amounts]


def _amount(column: Column, position: int, unit: int) -> int:
    if isinstance(column, tuple):
        return column[position]
    amount: int = struct.unpack_from("<q", column, 8 * position)[0]
    return amount * unit
