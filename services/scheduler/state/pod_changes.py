"""Differences between an observation of a pod and the one before it. Once that one is read, its class stands for it."""

from services.scheduler.state.pod_class import ask_key, has_same_spec
from services.scheduler.state.pod_record import PodFacts, conditions_checksum
from shared.kube.pod import Pod


def last_seen(facts: PodFacts) -> Pod:
    """Returns the newest observation; once it is read, the common part of its class."""
    if facts.observed is not None:
        return facts.observed
    assert facts.ask is not None, "observed before, so read"
    return facts.ask.pod


def is_other(facts: PodFacts, pod: Pod) -> bool:
    """Detects a change that selectors may notice."""
    if facts.deleting != (pod.metadata.deletion_timestamp is not None):
        return True
    return (last_seen(facts).metadata.labels or None) != (pod.metadata.labels or None)


def asks_less(facts: PodFacts, pod: Pod) -> bool:
    """Detects a change by which the pod may count with less."""
    seen = last_seen(facts)
    before = seen.spec
    return (
        before.containers != pod.spec.containers
        or before.resources != pod.spec.resources
        or seen.status.container_statuses != pod.status.container_statuses
    )


def asks_otherwise(facts: PodFacts, pod: Pod) -> bool:
    """Detects a change of class."""
    return ask_key(last_seen(facts)) != ask_key(pod)


def has_other_spec_or_conditions(facts: PodFacts, pod: Pod) -> bool:
    """Detects a change of the spec or of a condition of a pod that has a node."""
    if facts.observed is not None:
        same_conditions = facts.observed.status.conditions == pod.status.conditions
    else:
        same_conditions = facts.conditions == conditions_checksum(pod)
    return not same_conditions or not has_same_spec(last_seen(facts), pod)
