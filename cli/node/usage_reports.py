"""Measured usage of a node and its pods, as the log has it: reports of its agent, else its NodeMetric."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from cli.terminal.amounts import human_amount, human_amounts
from cli.terminal.durations import instant_of
from shared.events import RecordedEvent
from shared.events.cluster import NodeMetricObserved
from shared.events.metrics import NodeReported, Usage
from shared.kube.instants import BadTime, instant_ns
from shared.kube.node import NodeMetric, ResourceMap
from shared.kube.quantity import BadQuantity, amount, nanos
from shared.log.codec import Codec
from shared.log.reader import LogReader, read_record

AGENT, NODE_METRIC = "agent", "NodeMetric"
NOTABLE_PERCENT = 10
"""Difference between the usage of a node and the sum over its pods and its system above which both are shown."""


class PodUse(NamedTuple):
    """Usage of one pod: `namespace/name`, its classes, milli-cores and bytes; None where it is not measured."""

    pod: str
    qos: str
    priority: str
    cpu_milli: int | None
    memory: int | None


class UsageReport(NamedTuple):
    """A report.

    Attributes:
        event: `context/seq`. source: `agent` or `NodeMetric`.
        at_ns: the instant that it is about; 0 where the NodeMetric has no readable time.
        usage, system, best_effort: milli-cores and bytes, of the node, outside of pods, of best-effort pods.
        interval_s: the agent's reporting interval; 0 where it is not known.
        pods: by cpu, the largest first.
    """

    event: str
    source: str
    at_ns: int
    usage: Usage
    system: Usage
    best_effort: Usage
    interval_s: int
    pods: tuple[PodUse, ...]


async def usage_reports(
    log: LogReader, node: str, *, since: datetime | None = None, newest: int | None = None
) -> list[UsageReport]:
    """Returns reports about a node, oldest first: those of its agent where the log has any."""
    contexts = await log.contexts()
    metrics = [each for each in contexts if each.startswith("metrics-")]
    for sources, kind in ((metrics, NodeReported), (["cluster"] if "cluster" in contexts else [], NodeMetricObserved)):
        codec, found = Codec([kind]), list[UsageReport]()
        for context in sources:
            rows = log.rows(context=context, kind=kind.__name__, key=node, since=since, newest=newest)
            records = [record async for row in rows if (record := read_record(row, codec)) is not None]
            found += [_read(record) for record in records]
        if found:
            return sorted(found, key=lambda each: each.at_ns)[-(newest or len(found)) :]
    return []


def usage_text(report: UsageReport) -> str:
    """Returns the usage of the node in words. Where its pods and its system add up to another cpu, their sum is named:
    right after pods came or left, the node as a whole was measured over a window before that.
    """
    sizes = {"cpu": report.usage.cpu_milli, "memory": report.usage.memory}
    known = human_amounts({name: size for name, size in sizes.items() if size is not None}, none="nothing measured")
    at = instant_of(report.at_ns) if report.at_ns else "an unknown time"
    together = (report.system.cpu_milli or 0) + sum(pod.cpu_milli or 0 for pod in report.pods)
    if abs(together - (report.usage.cpu_milli or together)) <= together * NOTABLE_PERCENT // 100:
        return f"{known} at {at}"
    summed = human_amount("cpu", together)
    return f"{known} as a whole, and its pods and system together cpu {summed}, which LowNodeLoad compares, at {at}"


def _read(record: RecordedEvent) -> UsageReport:
    place, event = f"{record.context}/{record.seq}", record.event
    if isinstance(event, NodeReported):
        pods = [
            PodUse(each.pod, group.qos, group.priority, each.cpu_milli, each.memory)
            for group in event.pods
            for each in group.pods
        ]
        return UsageReport(
            place, AGENT, event.at_ns, event.usage, event.system, event.best_effort, event.interval_s, _ordered(pods)
        )
    assert isinstance(event, NodeMetricObserved), "the two kinds that are read"
    return _of_node_metric(place, event.object)


def _of_node_metric(place: str, metric: NodeMetric) -> UsageReport:
    status, policy = metric.status, metric.spec.metric_collect_policy
    pods = []
    for each in status.pods_metric:
        used = _usage(each.pod_usage)
        pods.append(PodUse(f"{each.namespace}/{each.name}", each.qos, each.priority, used.cpu_milli, used.memory))
    best_effort = [each for each in pods if each.qos == "BE"]
    node = status.node_metric
    return UsageReport(
        place,
        NODE_METRIC,
        _instant(status.update_time),
        _usage(node.node_usage if node else None),
        _usage(node.system_usage if node else None),
        Usage(sum(each.cpu_milli or 0 for each in best_effort), sum(each.memory or 0 for each in best_effort)),
        (policy.report_interval_seconds or 0) if policy else 0,
        _ordered(pods),
    )


def _instant(text: str | None) -> int:
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0


def _usage(measured: ResourceMap | None) -> Usage:
    quantities: Mapping[str, str] = (measured.resources if measured else None) or {}
    return Usage(_amount("cpu", quantities), _amount("memory", quantities))


def _amount(name: str, quantities: Mapping[str, str]) -> int | None:
    try:
        return amount(name, nanos(quantities[name])) if name in quantities else None
    except BadQuantity:
        return None


def _ordered(pods: list[PodUse]) -> tuple[PodUse, ...]:
    return tuple(sorted(pods, key=lambda each: (-(each.cpu_milli or 0), each.pod)))
