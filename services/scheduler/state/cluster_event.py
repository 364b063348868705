"""Kinds of cluster events. A plugin's queueing hints name the kinds that may end one of its reasons.

Source: spec/scheduler-core.md 1.3, queueing hints.
"""

from enum import IntEnum


class ClusterEvent(IntEnum):
    """Kind of change. The State keeps the seq of the last change per kind, for changes of a node per node and kind."""

    NODE_ADDED = 0
    ALLOCATABLE = 1
    LABELS = 2
    TAINTS = 3  # taints and `spec.unschedulable`
    ANNOTATIONS = 4
    POD_RELEASED = 5  # a pod ended, was deleted, or requests less
    METRIC = 6  # the NodeMetric was created, changed or deleted; reports are compared by their own seqs (`SchedulerStateFields.reported`)
    POD_ADDED = 7  # a pod was assigned to the node
    POD_CHANGED = 8  # labels of a pod changed, or its deletion began
    TOPOLOGY = 12  # the NodeResourceTopology or the Device was created, changed or deleted
    # The others belong to no node:
    NAMESPACE = 9  # a namespace was created or deleted, or its labels changed
    WORKLOAD = 10  # a service or a workload whose selector spreads pods by default
    VOLUME = 11  # a volume, a claim, a storage class, a driver on a node, or a storage capacity
    BUDGET = 13  # a disruption budget
    RESERVATION = 14  # a Reservation that pods may use appeared, or changed
    GPU_TEMPLATES = 16  # the templates of shared GPUs
    POD_GROUP = 15  # a PodGroup, or the ClusterNetworkTopology in whose domains gangs gather
