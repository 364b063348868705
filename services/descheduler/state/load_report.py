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


class Used(NamedTuple):
    """A used amount: milli-cores and bytes; None where the report lacks it."""

    cpu: int | None = None
    memory: int | None = None


class LoadReport(NamedTuple):
    """A report.

    Attributes:
        at_ns: the instant that it is about; 0 when it has none.
        has_node: it has a part about the node, and its time does not lie ahead of its observation.
        system: usage outside of pods.
        pods: `namespace/name` -> usage.
        ranges: the range of each resource over all its amounts.
    """

    at_ns: int = 0
    has_node: bool = False
    system: Used = Used()
    pods: dict[str, Used] = {}  # noqa: RUF012  # never changed
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
    return LoadReport(at_ns, has_node=True, system=_used(part.system_usage), pods=pods, ranges=ranges_of_status(status))


def report_of_event(report: NodeReported) -> LoadReport:
    """Converts a recorded report."""
    pods = {pod.pod: Used(pod.cpu_milli, pod.memory) for of in report.pods for pod in of.pods}
    system = Used(report.system.cpu_milli, report.system.memory)
    return LoadReport(report.at_ns, has_node=True, system=system, pods=pods, ranges=ranges_of_report(report))


def _used(given: ResourceMap | None) -> Used:
    found: dict[str, int] = {}
    for name in ("cpu", "memory"):
        if given and given.resources and name in given.resources:
            try:
                found[name] = amount(name, nanos(given.resources[name]))
            except BadQuantity:
                continue
    return Used(**found)


def _at_ns(text: str | None) -> int:
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0
