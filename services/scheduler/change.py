"""Classes of change in the cluster, by which a refused pod is woken: only by what can cure its reasons.

Source: spec/scheduler-core.md 1.3, queueing hints.
"""

from enum import IntEnum


class Change(IntEnum):
    """What changed on a node. The state keeps, per node and class, the seq of the last change."""

    NODE_ADDED = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 3  # taints and `spec.unschedulable`
    ANNOTATIONS = 4
    POD_RELEASED = 5  # a pod ended, was deleted, or asks for less
    METRIC = 6  # a NodeMetric came, changed or went
