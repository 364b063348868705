"""Events of the `metrics-*` contexts: usage of nodes, as agents report it and metrics ingest aggregates it.

There are many of them, so they are small: amounts are integers in short arrays, and pods are listed by class. They are
kept for hours, whether or not a newer report exists.
"""

from typing import ClassVar

import msgspec

from shared.events.base import Event

AGGREGATIONS = ("avg", "p50", "p90", "p95", "p99")
"""Aggregations of a window's samples, in the order in which WindowUsage lists them."""


class Usage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A used amount: milli-cores and bytes, rounded down; None where it is not measured."""

    cpu_milli: int | None = None
    memory: int | None = None


class WindowUsage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage over the last `duration_s` before the report.

    Attributes:
        node, system: by AGGREGATIONS; empty while the samples span less than half of the window.
    """

    duration_s: int
    node: tuple[Usage, ...] = ()
    system: tuple[Usage, ...] = ()


class PodReported(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of one pod: `namespace/name`, mean milli-cores and mean bytes."""

    pod: str
    cpu_milli: int | None = None
    memory: int | None = None


class ClassReported(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The pods of one class, by name.

    Attributes:
        priority: koord-prod, koord-mid, koord-batch, koord-free, or empty.
        qos: LSE, LSR, LS, BE, SYSTEM, or empty.
    """

    priority: str
    qos: str
    pods: tuple[PodReported, ...] = ()


class ApplicationReported(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of a process outside of pods that the NodeSLO names: mean milli-cores and bytes, and its class."""

    name: str
    priority: str = ""
    qos: str = ""
    cpu_milli: int | None = None
    memory: int | None = None


class ZoneReported(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of a NUMA zone, and the part of it outside of pods."""

    zone: int
    usage: Usage = Usage()
    system: Usage = Usage()


class GpuReported(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Usage of one GPU.

    Attributes:
        pod: `namespace/name`; empty for the node as a whole.
        core: percent of its cores.
        memory, memory_total: bytes.
    """

    pod: str
    minor: int
    uuid: str = ""
    core: int = 0
    memory: int = 0
    memory_total: int = 0


class NodeReported(Event, frozen=True, tag="koord.metrics.NodeReported.v1"):
    """Usage of a node and its pods, as of the node's own clock. Of two reports the one with the larger `at_ns` counts.

    Attributes:
        at_ns: the instant that the samples reach up to, by the node's clock.
        interval_s: the node's reporting interval.
        aggregate_s: over how many seconds before `at_ns` the plain usages are means.
        usage, system, best_effort: of the node, of processes outside of pods, of the best-effort pods.
        windows: usage over the configured windows.
        pods: the pods that were on the node at `at_ns`, by class, in order of names.
        unmatched: sum over pods that `cluster` did not contain yet; None when there is none.
        applications: host applications, by name; None from an agent that does not measure them.
        reclaimable: requests of prod pods that the agent predicts to stay unused; None from an agent that does not
            predict, empty where it cannot be predicted.
        peak: predicted peak usage of prod pods, margin and system included; None where it cannot be predicted.
        zones: by number. gpus: of the node, then of its pods.
        status_desired: the report is also an intent: the node's NodeMetric must have it as its status
            (`shared.domain.node_metric_status.desired_status`), and the gateway answers as it answers FieldsDesired. In
            logs of earlier builds a FieldsDesired with the whole status follows the report instead.
    """

    KEY: ClassVar[str] = "node"

    node: str
    at_ns: int
    interval_s: int
    aggregate_s: int
    usage: Usage = Usage()
    system: Usage = Usage()
    best_effort: Usage = Usage()
    windows: tuple[WindowUsage, ...] = ()
    pods: tuple[ClassReported, ...] = ()
    unmatched: Usage | None = None
    applications: tuple[ApplicationReported, ...] | None = None
    reclaimable: Usage | None = None
    peak: Usage | None = None
    zones: tuple[ZoneReported, ...] = ()
    gpus: tuple[GpuReported, ...] = ()
    status_desired: bool = False


class NodeHistoryReported(Event, frozen=True, tag="koord.metrics.NodeHistoryReported.v1"):
    """Usage of a node in an interval that lies back, from reports that its agent kept while it had no connection.

    It records what was measured and changes nothing: the newest usage is in NodeReported. Both may cover the same
    interval, and an interval that two messages share has an event for each part.

    Attributes:
        boot, number: the message that held the reports. Its events follow each other.
        at_ns: end of the last report of the interval, by the node's clock.
        interval_s: length of the interval.
        usage, system, best_effort, pods, unmatched: as in NodeReported, means over the interval. Of pods that are long
            gone only the sum is known, in `unmatched`.
    """

    KEY: ClassVar[str] = "node"

    node: str
    boot: str
    number: int
    at_ns: int
    interval_s: int
    usage: Usage = Usage()
    system: Usage = Usage()
    best_effort: Usage = Usage()
    pods: tuple[ClassReported, ...] = ()
    unmatched: Usage | None = None


class NodeReportsExpired(Event, frozen=True, tag="koord.metrics.NodeReportsExpired.v1"):
    """A node is gone and sends no reports any more: its earlier reports no longer count.

    Attributes:
        at_ns: `at_ns` of the last report that this ends; one with a larger `at_ns` counts again.
    """

    KEY: ClassVar[str] = "node"

    node: str
    at_ns: int
