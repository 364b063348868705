"""A node's report: its agent's measurements of one interval, as MessagePack arrays, about 65 bytes a pod.

Percentiles need samples, so node, system and best effort send each of theirs. Of a pod ingest keeps averages, so its
sum, count and newest value suffice. Agents have no Kubernetes objects: a pod is the uid in the name of its cgroup,
which ingest resolves.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from shared.agents.decoding import BadMessage, decoded

MAX_SAMPLES = 7_200
"""Samples of one series in a report at most: two hours of seconds."""
MAX_PODS = 4_096
MAX_APPLICATIONS = 256
MAX_ZONES = 256
MAX_GPUS = 8_192
MAX_CPU = 10**11
"""Micro-cores: 100,000 cores."""
MAX_MEMORY = 2**50
"""Bytes. Sums of MAX_SAMPLES of either fit 63 bits."""

Cpu = Annotated[int, Meta(ge=0, le=MAX_CPU)]
Memory = Annotated[int, Meta(ge=0, le=MAX_MEMORY)]
Count = Annotated[int, Meta(ge=0, le=MAX_SAMPLES)]
Sum = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Instant = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Uid = Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$")]


class Series(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Samples in the order of their time.

    Attributes:
        offset_ms: when each was taken, milliseconds after the interval's begin.
        cpu: micro-cores, the mean since the sample before; empty when this node does not measure it.
        memory: bytes in use without page cache; empty likewise.
    """

    offset_ms: Annotated[tuple[Sum, ...], Meta(max_length=MAX_SAMPLES)] = ()
    cpu: Annotated[tuple[Cpu, ...], Meta(max_length=MAX_SAMPLES)] = ()
    memory: Annotated[tuple[Memory, ...], Meta(max_length=MAX_SAMPLES)] = ()


class PodSum(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One pod's samples of the interval, added up. A count of 0: not measured.

    Attributes:
        uid: the pod's, as its cgroup is named: `metadata.uid`, or of a static pod its annotation
            `kubernetes.io/config.hash`.
        cpu_sum, cpu_last: micro-cores.
        memory_sum, memory_last: bytes.
    """

    uid: Uid
    cpu_sum: Sum = 0
    cpu_count: Count = 0
    cpu_last: Cpu = 0
    memory_sum: Sum = 0
    memory_count: Count = 0
    memory_last: Memory = 0


class ApplicationSum(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A host application's samples of the interval, added up: micro-cores and bytes. A count of 0: not measured.

    Attributes:
        name, priority, qos: as the NodeSLO states them.
    """

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    priority: Annotated[str, Meta(max_length=63)] = ""
    qos: Annotated[str, Meta(max_length=63)] = ""
    cpu_sum: Sum = 0
    cpu_count: Count = 0
    memory_sum: Sum = 0
    memory_count: Count = 0


class ZoneSum(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A NUMA zone's samples of the interval, added up: usage of the zone, and the part of it outside of pods."""

    zone: Annotated[int, Meta(ge=0, le=4_095)]
    cpu_sum: Sum = 0
    cpu_count: Count = 0
    memory_sum: Sum = 0
    memory_count: Count = 0
    system_cpu_sum: Sum = 0
    system_cpu_count: Count = 0
    system_memory_sum: Sum = 0
    system_memory_count: Count = 0


class GpuSum(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One GPU's samples of the interval, added up: of the node as a whole, or of one pod.

    Attributes:
        pod_uid: empty for the node as a whole.
        core_sum: percent of its cores.
        memory_sum, memory_total: bytes; the latter is what the GPU has.
    """

    pod_uid: Annotated[str, Meta(max_length=128)]
    minor: Annotated[int, Meta(ge=0, le=4_095)]
    uuid: Annotated[str, Meta(max_length=128)] = ""
    core_sum: Sum = 0
    memory_sum: Sum = 0
    count: Count = 0
    memory_total: Memory = 0


class Forecast(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A predicted amount: milli-cores and bytes; None where nothing can be predicted."""

    cpu_milli: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    memory: Annotated[int, Meta(ge=0, le=2**60)] | None = None


class Report(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Measurements of one node's agent in one interval. Its first place on the wire is the schema's version.

    Agents of an earlier release omit the last places, and an earlier ingest skips places that it does not have.

    Attributes:
        node: the Kubernetes node's name; must be the node of the login and of the topic.
        boot: names this run of the agent; each run has another.
        seq: number of the report in this run, from 1; a repeat has the same.
        at_ns: end of the interval by the node's clock, nanoseconds since the epoch.
        interval_ns: its length by a clock that does not jump.
        node_usage, system_usage, best_effort_usage: node = system + pods; best effort is a part of the pods.
        pods: those with a sample in the interval, by uid.
        applications: the host applications that the NodeSLO names, by name; None: this agent does not measure them.
        reclaimable: requests of prod pods that will not be used; None: this agent does not predict.
        peak: predicted peak usage of prod pods, with the margin.
        zones: by number. gpus: of the node first.
    """

    node: Name
    boot: Annotated[str, Meta(min_length=1, max_length=64)]
    seq: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    at_ns: Instant
    interval_ns: Annotated[int, Meta(ge=1, le=86_400 * 10**9)]
    node_usage: Series = Series()
    system_usage: Series = Series()
    best_effort_usage: Series = Series()
    pods: Annotated[tuple[PodSum, ...], Meta(max_length=MAX_PODS)] = ()
    applications: Annotated[tuple[ApplicationSum, ...], Meta(max_length=MAX_APPLICATIONS)] | None = None
    reclaimable: Forecast | None = None
    peak: Forecast | None = None
    zones: Annotated[tuple[ZoneSum, ...], Meta(max_length=MAX_ZONES)] = ()
    gpus: Annotated[tuple[GpuSum, ...], Meta(max_length=MAX_GPUS)] = ()

    @property
    def begins_ns(self) -> int:
        """Begin of the interval."""
        return self.at_ns - self.interval_ns


class BadReport(BadMessage):
    """A report that is rejected; the text names the node, the field and the reason."""

    what: ClassVar[str] = "report"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Report)


def encode(report: Report) -> bytes:
    """Returns a report as a message."""
    return _encoder.encode(report)


def decode(data: bytes, node: str) -> Report:
    """Returns a message as a report that satisfies its docstrings.

    Args:
        node: the node of the topic on which it came.

    Raises:
        BadReport: names the node, the field and the reason.
    """
    report = decoded(_decoder, Report, BadReport, data, node)
    _check(report)
    return report


def _check(report: Report) -> None:
    """Checks the relations between fields, which types cannot express."""
    node = report.node
    if report.begins_ns < 0:
        raise BadReport(node, "interval_ns", "begins before 1970")
    length_ms = report.interval_ns // 1_000_000
    for name in ("node_usage", "system_usage", "best_effort_usage"):
        _check_series(node, name, getattr(report, name), length_ms)
    seen: set[str] = set()
    for pod in report.pods:
        if pod.uid in seen:
            raise BadReport(node, "pods", f"holds {pod.uid} twice")
        seen.add(pod.uid)
        if pod.cpu_sum < pod.cpu_last or pod.cpu_sum > pod.cpu_count * MAX_CPU:
            raise BadReport(node, f"pods[{pod.uid}].cpu_sum", f"{pod.cpu_sum} is no sum of {pod.cpu_count} samples")
        if pod.memory_sum < pod.memory_last or pod.memory_sum > pod.memory_count * MAX_MEMORY:
            raise BadReport(
                node, f"pods[{pod.uid}].memory_sum", f"{pod.memory_sum} is no sum of {pod.memory_count} samples"
            )
    _check_sums(node, "applications", ((each.name, each) for each in report.applications or ()))
    _check_sums(node, "zones", ((each.zone, each) for each in report.zones))


def _check_sums(node: str, field: str, sums: Iterable[tuple[object, ApplicationSum | ZoneSum]]) -> None:
    seen: set[object] = set()
    for key, each in sums:
        if key in seen:
            raise BadReport(node, field, f"holds {key} twice")
        seen.add(key)
        for name, most in (("cpu", MAX_CPU), ("memory", MAX_MEMORY)):
            if getattr(each, f"{name}_sum") > getattr(each, f"{name}_count") * most:
                raise BadReport(node, f"{field}[{key}].{name}_sum", "is more than its samples can amount to")


def _check_series(node: str, name: str, series: Series, length_ms: int) -> None:
    offsets = series.offset_ms
    for values in ("cpu", "memory"):
        found = len(getattr(series, values))
        if found not in {0, len(offsets)}:
            raise BadReport(node, f"{name}.{values}", f"has {found} values for {len(offsets)} samples")
    if offsets and offsets[-1] > length_ms:
        raise BadReport(node, f"{name}.offset_ms", f"{offsets[-1]} lies after the interval's {length_ms} ms")
    if sorted(set(offsets)) != list(offsets):
        raise BadReport(node, f"{name}.offset_ms", "is not in the order of time, each instant once")
