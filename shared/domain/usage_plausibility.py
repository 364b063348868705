"""Plausibility of usage reports: a report that no measurement can give counts as one that is missing.

A client that may write NodeMetrics, or an agent with a fault, could otherwise attract all pods to a node, or sell
capacity that it does not have. Upstream believes every report.
"""

from collections.abc import Iterator, Mapping

from shared.kube.instants import SECOND
from shared.kube.node import NodeMetricStatus, ResourceMap
from shared.kube.quantity import BadQuantity, nanos

MAX_CLOCK_SKEW_NS = 3600 * SECOND
"""A report may be this much ahead of the instant at which it was recorded. The clock that is wrong may be the one of the
recorder: then every node reports from the future, and a narrow limit would take all of them out of service.
"""

MOST_TIMES_CAPACITY = 2
"""Usage may exceed the capacity for a moment, since counters are read one after the other; not by this factor."""


def is_ahead(at_ns: int, recorded_ns: int) -> bool:
    """Returns True for a report whose own time is after the one at which it was recorded; 0 is no known instant."""
    return 0 < recorded_ns < at_ns - MAX_CLOCK_SKEW_NS


def is_plausible(used: Mapping[str, int], capacity: Mapping[str, int]) -> bool:
    """Returns False where an amount is negative, or far above the node's capacity; both in nanos."""
    return all(
        size >= 0 and (not capacity.get(name) or size <= MOST_TIMES_CAPACITY * capacity[name])
        for name, size in used.items()
    )


def is_plausible_status(status: NodeMetricStatus, capacity: Mapping[str, str] | None) -> bool:
    """Returns False where an amount of the node in a NodeMetric is implausible; amounts that cannot be read are not."""
    limits = amounts_of(capacity)
    return all(is_plausible(amounts_of(usage.resources), limits) for usage in _of_node(status))


def _of_node(status: NodeMetricStatus) -> Iterator[ResourceMap]:
    part = status.node_metric
    if part is None:
        return
    yield from (usage for usage in (part.node_usage, part.system_usage) if usage is not None)
    for aggregated in part.aggregated_node_usages:
        yield from (aggregated.usage or {}).values()


def amounts_of(quantities: Mapping[str, str] | None) -> dict[str, int]:
    """Returns the amounts of a resource list that can be read, in nanos."""
    found: dict[str, int] = {}
    for name, text in (quantities or {}).items():
        try:
            found[name] = nanos(text)
        except BadQuantity:
            continue
    return found
