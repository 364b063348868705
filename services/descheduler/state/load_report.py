"""The measured usage of a node and its pods, in one form for NodeMetric objects and for reports in `metrics-*`.

Source: spec/descheduler.md 2.3: the usage of a node is that of its system and of the pods in the report; host
applications and the node's own total do not count.
"""

from typing import NamedTuple

from shared.domain.usage_plausibility import AmountRange, amount_faults, is_ahead, ranges_of_report, ranges_of_status
from shared.events.metrics import NodeReported
from shared.kube.instants import BadTime, instant_ns
from shared.kube.node import Node, NodeMetricStatus, ResourceMap
from shared.kube.quantity import BadQuantity, amount, nanos


class LoadReport(NamedTuple):
    """A report.

    Attributes:
        at_ns: the instant that it is about; 0 when it has none.
        has_node: it has a part about the node, and its time does not lie ahead of its observation.
        system: usage outside of pods, by resource: cpu in milli-cores, memory in bytes, the rest in whole units. A
            resource that is not measured is absent. A NodeMetric may have any resource, for thresholds to name it.
        pods: `namespace/name` -> usage.
        peak: predicted peak of prod pods with the system, by resource; one without a prediction is absent.
        ranges: the range of each resource over all its amounts.
    """

    at_ns: int = 0
    has_node: bool = False
    system: dict[str, int] = {}  # noqa: RUF012  # never changed
    pods: dict[str, dict[str, int]] = {}  # noqa: RUF012  # never changed
    peak: dict[str, int] = {}  # noqa: RUF012  # never changed
    ranges: dict[str, AmountRange] = {}  # noqa: RUF012  # never changed

    def is_believable(self, node: Node | None) -> bool:
        """Reports whether a measurement on this node can give the report."""
        return self.has_node and not any(
            True for _ in amount_faults(self.ranges, node.status.capacity if node else None)
        )


def report_of_node_metric(status: NodeMetricStatus, observed_ns: int) -> LoadReport:
    """Converts the status of a NodeMetric; a quantity that cannot be read counts as absent."""
    at_ns = _at_ns(status.update_time)
    part = status.node_metric
    if part is None or is_ahead(at_ns, observed_ns):
        return LoadReport(at_ns)
    pods = {f"{pod.namespace}/{pod.name}": _used(pod.pod_usage) for pod in status.pods_metric}
    predicted = status.prod_peak_metric
    return LoadReport(
        at_ns,
        has_node=True,
        system=_used(part.system_usage),
        pods=pods,
        peak=_used(predicted.resource if predicted else None),
        ranges=ranges_of_status(status),
    )


def report_of_event(report: NodeReported) -> LoadReport:
    """Converts a recorded report."""
    pods = {pod.pod: _amounts(pod.cpu_milli, pod.memory) for of in report.pods for pod in of.pods}
    system = _amounts(report.system.cpu_milli, report.system.memory)
    peak = {} if report.peak is None else _amounts(report.peak.cpu_milli, report.peak.memory)
    ranges = ranges_of_report(report)
    return LoadReport(report.at_ns, has_node=True, system=system, pods=pods, peak=peak, ranges=ranges)


def _amounts(cpu: int | None, memory: int | None) -> dict[str, int]:
    if cpu is not None and memory is not None:
        return {"cpu": cpu, "memory": memory}
    return {name: size for name, size in (("cpu", cpu), ("memory", memory)) if size is not None}


def _used(given: ResourceMap | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, text in ((given and given.resources) or {}).items():
        try:
            found[name] = amount(name, nanos(text))
        except BadQuantity:
            continue
    return found


def _at_ns(text: str | None) -> int:
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0
