"""Plausibility of usage reports: a report that no measurement can give counts as one that is missing.

A client that may write NodeMetrics, or an agent with a fault, could otherwise attract all pods to a node, or sell
capacity that it does not have. Upstream believes every report.

Amounts are integers here: cpu in milli-cores, everything else in whole units, rounded up.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from shared.events.metrics import NodeReported
from shared.kube.instants import SECOND, instant_text
from shared.kube.node import NodeMetricStatus, ResourceMap
from shared.kube.quantity import BadQuantity, amount, bytes_text, milli_text, nanos

MAX_CLOCK_SKEW_NS = 3600 * SECOND
"""A report may be this much ahead of the instant at which it was recorded. The clock that is wrong may be the one of the
recorder: then every node reports from the future, and a narrow limit would take all of them out of service.
"""

MOST_TIMES_CAPACITY = 2
"""Usage may exceed the capacity for a moment, since counters are read one after the other; not by this factor."""

_MOST = 2**62
"""A larger amount is kept as this one, so that it can be stored in 64 bits."""


class AmountRange(NamedTuple):
    """The least and the largest amount of a resource in one report."""

    least: int
    most: int


Ranges = Mapping[str, AmountRange]
"""The range of each resource over the amounts of a report: of the node, its windows, its pods and applications."""


class ReportFault(NamedTuple):
    """The reason for which a report cannot be true.

    Attributes:
        kind: the same for reports that differ in their amounts alone, as `cpu is negative`.
        what: for people, with the amount.
    """

    kind: str
    what: str


def is_ahead(at_ns: int, recorded_ns: int) -> bool:
    """Returns True for a report whose own time is after the one at which it was recorded; 0 is no known instant."""
    return 0 < recorded_ns < at_ns - MAX_CLOCK_SKEW_NS


def clock_fault(at_ns: int) -> ReportFault:
    """Returns the fault of a report for which `is_ahead` holds."""
    what = f"its time is {instant_text(at_ns // SECOND * SECOND)}, over an hour after it arrived"
    return ReportFault("its time is in the future", what)


def amount_faults(ranges: Ranges, capacity: Mapping[str, str] | None) -> Iterator[ReportFault]:
    """Yields the reasons for which amounts in these ranges cannot be true on a node of this capacity."""
    for name, (least, most) in sorted(ranges.items()):
        if least < 0:
            yield ReportFault(f"{name} is negative", f"{name} is {_text(name, least)}, which is negative")
        limit = _amount(name, (capacity or {}).get(name))
        if limit and most > MOST_TIMES_CAPACITY * limit:
            above = f"over {MOST_TIMES_CAPACITY} times the node's capacity of {_text(name, limit)}"
            yield ReportFault(f"{name} is above the capacity", f"{name} is {_text(name, most)}, {above}")


def ranges_of_status(status: NodeMetricStatus) -> dict[str, AmountRange]:
    """Returns the ranges of a NodeMetric. A quantity that cannot be read counts as absent."""
    texts: dict[str, set[str]] = {}  # reports repeat their amounts over windows and pods
    for resource_map in _maps(status):
        if resource_map is not None and resource_map.resources:
            for name, text in resource_map.resources.items():
                if name in texts:
                    texts[name].add(text)
                else:
                    texts[name] = {text}
    found: dict[str, AmountRange] = {}
    for name, different in texts.items():
        sizes = [size for text in different if (size := _amount(name, text)) is not None]
        if sizes:
            found[name] = AmountRange(min(sizes), max(sizes))
    return found


def ranges_of_report(report: NodeReported) -> dict[str, AmountRange]:
    """Returns the ranges of a recorded report."""
    parts = [
        report.usage,
        report.system,
        *chain.from_iterable((*window.node, *window.system) for window in report.windows),
        *chain.from_iterable(of.pods for of in report.pods),
        *(report.applications or ()),
        *((report.reclaimable,) if report.reclaimable else ()),
    ]
    found: dict[str, AmountRange] = {}
    if cpu := [each.cpu_milli for each in parts if each.cpu_milli is not None]:
        found["cpu"] = AmountRange(_bounded(min(cpu)), _bounded(max(cpu)))
    if memory := [each.memory for each in parts if each.memory is not None]:
        found["memory"] = AmountRange(_bounded(min(memory)), _bounded(max(memory)))
    return found


def _maps(status: NodeMetricStatus) -> list[ResourceMap | None]:
    maps: list[ResourceMap | None] = [pod.pod_usage for pod in status.pods_metric]
    if (part := status.node_metric) is not None:
        maps += (part.node_usage, part.system_usage)
        for windows in (part.aggregated_node_usages, part.aggregated_system_usages):
            for aggregated in windows:
                maps += (aggregated.usage or {}).values()
    maps += [application.usage for application in status.host_application_metric]
    if status.prod_reclaimable_metric is not None:
        maps.append(status.prod_reclaimable_metric.resource)
    return maps


@lru_cache(maxsize=4_096)
def _amount(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else _bounded(amount(name, nanos(text)))
    except BadQuantity:
        return None


def _bounded(size: int) -> int:
    return min(max(size, -_MOST), _MOST)


def _text(name: str, size: int) -> str:
    return milli_text(size) if name == "cpu" else bytes_text(size)
