"""Usage by predicted peaks: a node counts with the peak that its agent predicts, not by the last average alone.

A rule of this system, off by default (`usePredictedPeaks`); upstream has none. The agent predicts the peak of the prod
pods with that of the system, margin included, of a prod pod younger than a day its whole request (spec/node-agent.md
3.12, spec/api.md 1.2); the other pods count with what was measured:

    predicted[r] = max(measured[r], min(peak[r] + sum of the usage of reported pods that are not prod, capacity[r]))

A resource without a prediction counts as measured, and so do prod pods alone: their peak is not reported apart from
that of the system. What pods give back when they leave is measured as well.
"""

from collections.abc import Iterable

from services.descheduler.load_aware.measured_node import MeasuredNode


def at_predicted_peaks(nodes: Iterable[MeasuredNode]) -> list[MeasuredNode]:
    """Returns the nodes with the usage that is expected at their peaks."""
    return [_at_peak(node) if node.peak else node for node in nodes]


def _at_peak(node: MeasuredNode) -> MeasuredNode:
    total = dict(node.total)
    for resource, peak in node.peak.items():
        reported = sum(used.get(resource, 0) for used in node.pod_usage.values())
        expected = peak + reported - node.prod_total.get(resource, 0)
        # A node cannot use more than it has, whatever its agent predicts.
        total[resource] = max(total.get(resource, 0), min(expected, node.capacity.get(resource, 0)))
    return node._replace(total=total)
