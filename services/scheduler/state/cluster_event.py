"""Classes of change in the cluster, by which a refused pod is woken: only by what can cure its reasons.

Source: spec/scheduler-core.md 1.3, queueing hints.
"""

from enum import IntEnum


class ClusterEvent(IntEnum):
    """What changed. The state keeps the seq of the last change per class, for those of a node per node and class."""

    NODE_ADDED = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 3  # taints and `spec.unschedulable`
    ANNOTATIONS = 4
    POD_RELEASED = 5  # a pod ended, was deleted, or asks for less
    METRIC = 6  # a NodeMetric came, changed or went; or a report was recorded, which `reported` of a node tells, not its seq here
    POD_ADDED = 7  # a pod came to run there
    POD_CHANGED = 8  # labels of a pod changed, or it began to end
    TOPOLOGY = 12  # the NodeResourceTopology came, changed or went
    # Of no node in particular:
    NAMESPACE = 9  # a namespace came, went, or its labels changed
    WORKLOAD = 10  # a service or a workload, by whose selector pods are spread by default
    VOLUME = 11  # a volume, a claim, a storage class, a driver on a node, or a storage capacity
    BUDGET = 13  # a disruption budget
