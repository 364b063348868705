"""Requests that no cycle can meet as the cluster is: of more than any node has, of devices that none has or that nothing
allocates, and beyond the max of the quota.

A function of the State, for commands that read the log.
"""

from collections.abc import Iterable, Iterator

from services.scheduler.framework.reasons import Reason
from services.scheduler.plugins.device_share.pod_device_requests import read_device_requests
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.registry import text
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.scheduler_state import SchedulerState
from shared.closest_name import closest, did_you_mean
from shared.domain.device_requests import TYPE_OF
from shared.domain.priority import OVERCOMMITTED
from shared.domain.reservation import RESERVATION_PLACEMENT
from shared.kube.elastic_quota import QUOTA_NAME, RESERVED, ROOT
from shared.kube.quantity import BadQuantity, amount, nanos
from shared.kube.quantity_text import exact_text, is_in_bytes

NO_NODES = "the cluster has no nodes"


def impossible_requests(view: SchedulerState, record: PodRecord) -> Iterator[str]:
    """Yields them for a pod without a node, or a Reservation without one."""
    pod_class = record.pod_class
    if pod_class is None:
        return
    if not view.nodes:
        if record.attempts:  # before, the log may not hold the nodes yet
            yield NO_NODES
        return
    yield from _of_nodes(view, pod_class)
    requests = read_device_requests(pod_class.pod, pod_class.request)
    if isinstance(requests, Rejection):
        yield from (_words(reason) for reason in requests.reasons)
    yield from _of_quota(view, record, pod_class)
    yield from _of_pinned_node(view, pod_class)


def impossible_of(view: SchedulerState, records: Iterable[PodRecord]) -> dict[str, str]:
    """Returns a sentence about each request of several pods that no cycle can meet -> the first pod that makes it; pods
    of one class are looked at once.
    """
    found: dict[str, str] = {}
    for record in {each.pod_class: each for each in reversed(list(records))}.values():
        for text_ in impossible_requests(view, record):
            found[text_] = min(record.name, found.get(text_, record.name))
    return found


def missing_quota(view: SchedulerState, pod_class: PodClass) -> Iterator[str]:
    """Yields that the quota of a pod's label does not exist: the pod counts in another one."""
    label = pod_class.labels.get(QUOTA_NAME, "")
    if not label or label in (ROOT, *RESERVED) or view.quota.exists(label):
        return
    counts, _ = view.quota.names.resolve(pod_class.namespace, {QUOTA_NAME: label})
    instead = f"the pod counts in {counts}" if counts else "the pod counts in none"
    meant = did_you_mean(label, view.quota.names.quotas)
    yield f"label {QUOTA_NAME} names quota {label!r}, which does not exist: {instead}{meant}"


def _of_nodes(view: SchedulerState, pod_class: PodClass) -> Iterator[str]:
    """Yields each resource of which the pod requests more than the largest node has: it waits for a larger node."""
    nodes = [each.node.status.allocatable or {} for each in view.nodes.values()]
    for resource, requested in sorted(pod_class.request.items()):
        largest = max(_amount(resource, there.get(resource, "0")) for there in nodes)
        if requested <= largest:
            continue
        size = exact_text(resource, requested)
        if largest:
            has = exact_text(resource, largest)
            yield f"it is larger than every node: it requests {resource} {size}, and the largest node has {has}"
        elif resource in TYPE_OF:
            yield f"it requests {resource} {size}, and no node reports devices of type {TYPE_OF[resource]}: `koord devices`"
        elif resource in OVERCOMMITTED:
            yield f"it requests {resource} {size}, and no node has any: {_why_none(view)}"
        else:
            known = sorted({*TYPE_OF, *OVERCOMMITTED, *(name for there in nodes for name in there)} - {resource})
            meant = closest(resource, known)
            size = exact_text(meant, requested) if is_in_bytes(meant) else size
            yield f"it requests {resource} {size}, and no node has any{did_you_mean(resource, known)}"


def _why_none(view: SchedulerState) -> str:
    """Returns why no node has a resource that follows from usage reports."""
    if view.reports or any(each.updated for each in view.metrics.values()):
        return (
            "nodes get it where over-commitment is on and their use leaves some; `koord explain node` shows it of each"
        )
    return (
        "nodes get it by their usage reports, and none reports: run `koord run node-agent` on them, or have koordlet "
        "write their NodeMetrics"
    )


def _amount(resource: str, quantity: str) -> int:
    try:
        return amount(resource, nanos(quantity))
    except BadQuantity:
        return 0


def _words(reason: Reason) -> str:
    return text(reason.code, reason.detail)


def _of_quota(view: SchedulerState, record: PodRecord, pod_class: PodClass) -> Iterator[str]:
    """Yields each resource of which the pod alone requests more than the max of its quota."""
    if pod_class.reserves or not view.quota.needs_charge(pod_class.namespace, pod_class.labels):
        return
    entry = view.quota.entry_of(record.uid, pod_class.namespace, pod_class.labels, pod_class.request)
    declared = view.quota.names.quotas.get(entry.quota) if entry is not None else None
    if entry is None or declared is None:
        return
    for resource, requested in sorted(entry.request.items()):
        if requested > (limit := declared.max.get(resource, requested)):
            sizes = exact_text(resource, requested), exact_text(resource, limit)
            yield (
                f"it is larger than its quota: it requests {resource} {sizes[0]}, "
                f"and the max of quota {entry.quota} is {sizes[1]}"
            )


def _of_pinned_node(view: SchedulerState, pod_class: PodClass) -> Iterator[str]:
    """Yields that the node to which a Reservation is pinned does not exist."""
    _, _, pinned = (pod_class.pod.metadata.annotations or {}).get(RESERVATION_PLACEMENT, "").partition("/")
    if pinned and pinned not in view.nodes:
        yield f"its nodeName is {pinned!r}, and there is no such node{did_you_mean(pinned, view.nodes)}"
