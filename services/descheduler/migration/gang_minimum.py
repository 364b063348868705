"""No eviction leaves a gang below its minimum, but where all its members that must move have places that are held: a
gang moves as a unit or not at all, but for members to spare.

The mode of the gang does not count: the scheduler ends every gang that an eviction leaves with fewer than its minimum.
A place that is held counts there like a member.

This is a rule of this system; upstream has none. A pod that may be evicted at any time by its annotation is no
exception: the others of its gang did not ask for it. Source of gangs: spec/scheduler-workloads.md 2.1.
"""

from collections.abc import Container

from services.descheduler.migration.cluster_facts import ClusterFacts
from shared.domain.gang import gang_of
from shared.kube.pod import Pod


def breaks_gang(facts: ClusterFacts, pod: Pod, leaving: Container[str] = ()) -> str:
    """Returns why a pod may not leave its gang alone, as a phrase; empty where it may.

    Args:
        leaving: uids of pods that count as gone, since they move already.
    """
    metadata = pod.metadata
    gang = gang_of(metadata)
    if not gang or not pod.spec.node_name:
        return ""
    settings = facts.gang_settings(gang)
    if settings is None:
        return ""
    left = sum(
        bool(each.spec.node_name)
        and not each.metadata.deletion_timestamp
        and each.metadata.uid != metadata.uid
        and each.metadata.uid not in leaving
        for each in facts.pods.of_gang(gang)
    )
    if left >= settings.minimum:
        return ""
    return f"it would leave gang {gang} with {left} running members of at least {settings.minimum}"


def gang_without_spare(facts: ClusterFacts, pod: Pod) -> str:
    """Returns the gang of a pod which cannot spare it, so that it moves as a unit with others; empty for none."""
    return gang_of(pod.metadata) if breaks_gang(facts, pod) else ""
