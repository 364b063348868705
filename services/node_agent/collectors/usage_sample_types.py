"""Usage samples of a collection cycle. All integers: micro-cores over the time between two reads, bytes."""

from collections.abc import Mapping
from typing import NamedTuple

from services.node_agent.collectors.gpu_usage import GpuUses

SECOND_NS = 1_000_000_000
MICRO = 1_000_000


class Usage(NamedTuple):
    """One sample: micro-cores since the sample before, and bytes; None where this node does not measure it.

    Attributes:
        memory: without page cache.
        counted: memory by the NodeMetric's collect policy, where that differs from `memory`.
    """

    cpu: int | None
    memory: int | None
    counted: int | None = None

    @property
    def reported(self) -> int | None:
        """The bytes for reports."""
        return self.memory if self.counted is None else self.counted


class ZoneUsage(NamedTuple):
    """One sample of a NUMA zone, and of the part of it outside of pods."""

    usage: Usage
    system: Usage


class UsageSnapshot(NamedTuple):
    """The samples of one collection cycle. None, and absent pods: no sample.

    Attributes:
        at_ns: begin of the cycle, by the injected clock.
        pods: uid -> sample.
        applications: name of a host application -> sample.
        zones: number of a NUMA zone -> sample, in cycles that sample zones.
        gpus: of the node and of pods.
    """

    at_ns: int
    node: Usage | None
    system: Usage | None
    best_effort: Usage | None
    pods: dict[str, Usage]
    applications: Mapping[str, Usage] = {}
    zones: Mapping[int, ZoneUsage] = {}
    gpus: GpuUses = {}  # noqa: RUF012  never changed
