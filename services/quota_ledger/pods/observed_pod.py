"""The fields of a pod's object that quota depends on."""

import msgspec

from services.quota_ledger.pods.pod_request import counted_request, is_preemptible
from shared.domain.gang import GangSettings, gang_of, settings_of_pod
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND, BadTime, instant_ns
from shared.kube.pod import ENDED_PHASES, Pod


class ObservedPod(msgspec.Struct, frozen=True, eq=False, weakref=True, omit_defaults=True):
    """The fields that pods of one workload have in common: `PodTable` stores each combination once.

    Attributes:
        label: the quota that the pod names.
        request: all its requests; the resources that count depend on the quota.
        bound: it has a node.
        ended: it has succeeded or failed.
        terminating: its deletion has begun.
        gang: id of its gang; empty without one.
        gang_settings: those that it declares for its gang; None where it declares none.
    """

    namespace: str
    label: str
    request: dict[str, int]
    bound: bool = False
    preemptible: bool = True
    priority: int = 0
    ended: bool = False
    terminating: bool = False
    gang: str = ""
    gang_settings: GangSettings | None = None


def observed_of(pod: Pod) -> ObservedPod:
    """Reads a pod's object."""
    metadata = pod.metadata
    gang = gang_of(metadata)
    return ObservedPod(
        namespace=metadata.namespace,
        label=(metadata.labels or {}).get(QUOTA_NAME, ""),
        request=counted_request(pod),
        bound=bool(pod.spec.node_name),
        preemptible=is_preemptible(pod),
        priority=pod.spec.priority or 0,
        ended=pod.status.phase in ENDED_PHASES,
        terminating=metadata.deletion_timestamp is not None,
        gang=gang,
        gang_settings=settings_of_pod(gang, metadata.labels, metadata.annotations) if gang else None,
    )


def started_s(pod: Pod) -> float:
    """Returns a pod's start in seconds since the epoch; 0 before its start, or where the time is unreadable."""
    try:
        # Past the cache of `instant_ns`: start times hardly repeat, and each is parsed once.
        return instant_ns.__wrapped__(pod.status.start_time) / SECOND if pod.status.start_time else 0.0
    except BadTime:
        return 0.0
