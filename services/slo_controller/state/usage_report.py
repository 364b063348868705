"""The measured usage of a node, in one form for NodeMetric objects and for reports in `metrics-*`.

Source: spec/slo-controller.md 1.2.
"""

from collections.abc import Mapping
from sys import intern
from typing import NamedTuple

from services.slo_controller.state.pod_usage_columns import NO_PODS, PodUsageColumns, pod_usage_columns
from shared.domain.cpu_memory import MILLI, Amount
from shared.domain.usage_plausibility import (
    AmountRange,
    ReportFault,
    amount_faults,
    clock_fault,
    is_ahead,
    ranges_of_report,
    ranges_of_status,
)
from shared.events.metrics import NodeReported, Usage
from shared.kube.instants import BadTime, instant_ns
from shared.kube.node import NodeMetricStatus, ResourceMap
from shared.kube.quantity import NANO, BadQuantity, nanos

BAND_VALUES: Mapping[str, int] = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500}
"""Class -> the value by which bands are compared; 0 for any other text. Source: spec/slo-controller.md 0.3."""

BATCH_BAND, MID_BAND = BAND_VALUES["koord-batch"], BAND_VALUES["koord-mid"]


class ApplicationUsage(NamedTuple):
    """The usage of a host application: a process outside of pods."""

    usage: Amount
    priority: str


class UsageReport(NamedTuple):
    """A usage report.

    Attributes:
        at_ns: the instant that it is about; 0 when it has none.
        node: usage of the node; None when it lacks cpu or memory.
        has_node: there is a part about the node at all.
        pods: usage of each pod.
        reclaimable: predicted for prod pods; zero without a prediction.
        has_applications, has_reclaimable: the report has these parts; agents that enforce nothing leave them out.
        ranges: the range of each resource over all amounts of the report.
        ahead_ns: the time of a report that is dropped because that lies in the future; else 0.
    """

    at_ns: int = 0
    has_node: bool = False
    node: Amount | None = None
    system: Amount = Amount()
    pods: PodUsageColumns = NO_PODS
    applications: tuple[ApplicationUsage, ...] = ()
    reclaimable: Amount = Amount()
    has_applications: bool = True
    has_reclaimable: bool = True
    ranges: dict[str, AmountRange] = {}  # noqa: RUF012  # never changed
    ahead_ns: int = 0

    def faults(self, capacity: Mapping[str, str] | None) -> tuple[ReportFault, ...]:
        """Returns the reasons for which no measurement on a node of this capacity can give the report."""
        if self.ahead_ns:
            return (clock_fault(self.ahead_ns),)
        return tuple(amount_faults(self.ranges, capacity))

    def applications_above(self, band: int) -> Amount:
        """Sums the applications above a priority band. An application without a class does not count (quirk Q6)."""
        total = Amount()
        for application in self.applications:
            if BAND_VALUES.get(application.priority, 0) > band:
                total = total.plus(application.usage)
        return total


NO_REPORT = UsageReport()
"""The report of a node that has not reported."""


def report_of_node_metric(status: NodeMetricStatus, observed_ns: int) -> UsageReport:
    """Converts the status of a NodeMetric. A quantity that cannot be read counts as absent; a report whose time is far
    after the instant at which it was observed counts as missing.
    """
    at_ns = _at_ns(status.update_time)
    if is_ahead(at_ns, observed_ns):
        return NO_REPORT._replace(ahead_ns=at_ns)
    part = status.node_metric
    node = _quantities(part.node_usage) if part else {}
    reclaimable = status.prod_reclaimable_metric
    return UsageReport(
        at_ns=at_ns,
        has_node=part is not None,
        node=Amount(node["cpu"], node["memory"]) if len(node) == 2 else None,
        system=_amount(part.system_usage) if part else Amount(),
        pods=pod_usage_columns(
            {f"{pod.namespace}/{pod.name}": (*_amount(pod.pod_usage), pod.priority) for pod in status.pods_metric}
        ),
        applications=tuple(
            ApplicationUsage(_amount(each.usage), each.priority) for each in status.host_application_metric
        ),
        reclaimable=_amount(reclaimable.resource) if reclaimable else Amount(),
        ranges=ranges_of_status(status),
    )


def report_of_event(report: NodeReported) -> UsageReport:
    """Converts a recorded report."""
    usage = report.usage
    whole = usage.cpu_milli is not None and usage.memory is not None
    return UsageReport(
        at_ns=report.at_ns,
        has_node=True,
        node=_used(usage) if whole else None,
        system=_used(report.system),
        pods=pod_usage_columns(
            {
                pod.pod: ((pod.cpu_milli or 0) * MILLI, (pod.memory or 0) * NANO, of.priority)
                for of in report.pods
                for pod in of.pods
            }
        ),
        applications=tuple(
            ApplicationUsage(_used(Usage(each.cpu_milli, each.memory)), intern(each.priority))
            for each in report.applications or ()
        ),
        reclaimable=_used(report.reclaimable or Usage()),
        has_applications=report.applications is not None,
        has_reclaimable=report.reclaimable is not None,
        ranges=ranges_of_report(report),
    )


def _used(usage: Usage) -> Amount:
    return Amount((usage.cpu_milli or 0) * MILLI, (usage.memory or 0) * NANO)


def _amount(resource_map: ResourceMap | None) -> Amount:
    found = _quantities(resource_map)
    return Amount(found.get("cpu", 0), found.get("memory", 0))


def _quantities(resource_map: ResourceMap | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in ("cpu", "memory"):
        if resource_map and resource_map.resources and name in resource_map.resources:
            try:
                found[name] = nanos(resource_map.resources[name])
            except BadQuantity:
                continue
    return found


def _at_ns(text: str | None) -> int:
    try:
        return instant_ns(text) if text else 0
    except BadTime:
        return 0
