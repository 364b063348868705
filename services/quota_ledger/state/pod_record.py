"""A pod as the ledger sees it: what `cluster` says of it, and our scheduler's word on it."""

import msgspec

from services.quota_ledger.accounting.projection import AttachedPod
from services.quota_ledger.state.pod_request import ENDED, counted_request, is_preemptible
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import BadTime, instant_ns
from shared.kube.pod import Pod


class PodRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod as `cluster` has it, as far as quota asks.

    Attributes:
        label: the quota it names.
        request: everything it asks for; what a quota counts of it depends on the quota.
        started_ns: 0 while it has not.
        leaving: it is being deleted.
    """

    pod: str
    namespace: str
    label: str
    request: dict[str, int]
    node: str = ""
    preemptible: bool = True
    priority: int = 0
    started_ns: int = 0
    ended: bool = False
    leaving: bool = False


class Placement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our scheduler's newest word on a pod, and whether it was refused.

    Attributes:
        seq, cycle: of the newest PodPlaced, or of the CycleDecided that announces it.
        refused_seq: of the newest PodPlaced that was answered with anything but a binding.
    """

    seq: int = 0
    cycle: int = 0
    refused_seq: int = 0


def same(held: AttachedPod | None, wanted: AttachedPod | None) -> bool:
    """Whether the books hold what is wanted; the cycle that asked is of no account."""
    if held is None or wanted is None:
        return held is wanted
    return (held.quota, held.tree, held.request, held.preemptible, held.charged) == (
        wanted.quota,
        wanted.tree,
        wanted.request,
        wanted.preemptible,
        wanted.charged,
    )


def seen_of(pod: Pod) -> PodRecord:
    """A pod as far as quota asks."""
    try:
        started = instant_ns(pod.status.start_time) if pod.status.start_time else 0
    except BadTime:
        started = 0
    return PodRecord(
        pod=pod.metadata.key,
        namespace=pod.metadata.namespace,
        label=(pod.metadata.labels or {}).get(QUOTA_NAME, ""),
        request=counted_request(pod),
        node=pod.spec.node_name,
        preemptible=is_preemptible(pod),
        priority=pod.spec.priority or 0,
        started_ns=started,
        ended=pod.status.phase in ENDED,
        leaving=pod.metadata.deletion_timestamp is not None,
    )
