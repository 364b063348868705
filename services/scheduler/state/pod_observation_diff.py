"""Differences between an observation of a pod and the previous one, of which only the class is kept once it is read.

`seen` is what `last_seen` returns: a caller that compares several parts looks it up once.
"""

from services.scheduler.state.packed_pod_observation import observation
from services.scheduler.state.pod_equivalence_class import class_key, has_same_spec
from services.scheduler.state.pod_scheduling_record import PodRecord, conditions_checksum
from shared.kube.pod import Pod


def last_seen(pod_record: PodRecord) -> Pod:
    """Returns the newest observation; once it is read, the common part of its class."""
    if pod_record.observed is not None:
        return pod_record.observed
    assert pod_record.pod_class is not None, "observed before, so read"
    return pod_record.pod_class.pod


def changes_labels(pod_record: PodRecord, seen: Pod, pod: Pod) -> bool:
    """Detects a change that may alter which selectors match the pod."""
    if pod_record.deleting != (pod.metadata.deletion_timestamp is not None):
        return True
    return (seen.metadata.labels or None) != (pod.metadata.labels or None)


def requests_less(seen: Pod, pod: Pod) -> bool:
    """Detects a change that may reduce what the pod requests."""
    before = seen.spec
    return (
        before.containers != pod.spec.containers
        or before.resources != pod.spec.resources
        or seen.status.container_statuses != pod.status.container_statuses
    )


def requests_changed(seen: Pod, pod: Pod) -> bool:
    """Detects a change of class."""
    return class_key(seen) != class_key(pod)


def has_other_spec_or_conditions(pod_record: PodRecord, pod: Pod) -> bool:
    """Detects a change of the spec or of a condition of a pod that has a node."""
    if pod_record.observed is not None:
        same_conditions = pod_record.observed.status.conditions == pod.status.conditions
    else:
        same_conditions = observation(pod_record.observation).conditions == conditions_checksum(pod)
    return not same_conditions or not has_same_spec(last_seen(pod_record), pod)
