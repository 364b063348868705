"""Pods that are attached to a quota, moved, resized, charged, reverted or released. Source: spec/quota.md 2.4, 7.3."""

from collections.abc import Iterator

from services.quota_ledger.pods.pod_quota_entry import AttachedPod
from services.quota_ledger.state.ledger_state import LedgerState
from shared.events import Event
from shared.events.quota import PodAttached, PodCharged, PodChargeReverted, PodMoved, PodReleased, PodResized

MAX_PODS = 2_000
"""Pods of one append, at most."""


def pod_events(state: LedgerState) -> Iterator[Event]:
    """Yields the events of up to MAX_PODS pods whose attachment or charge differs from the desired one."""
    for uid in sorted(state.pods_to_update)[:MAX_PODS]:
        yield from _pod(state, uid, state.projection.pods.get(uid), state.desired(uid))


def _pod(state: LedgerState, uid: str, attached: AttachedPod | None, desired: AttachedPod | None) -> Iterator[Event]:
    if desired is None:
        if attached is not None:
            name = state.projection.pods.name(uid)
            yield PodReleased(pod_uid=uid, pod=name, quota=attached.quota, reason=_release_reason(state, uid))
        return
    name = state.pods.entries[uid].name
    charged = attached is not None and attached.charged
    if attached is not None and charged and not desired.charged:
        # First, and as it was charged: a larger request or another quota must not count as used in between.
        reason = _revert_reason(state, uid, attached)
        yield PodChargeReverted(pod_uid=uid, pod=name, quota=attached.quota, request=attached.request, reason=reason)
    if attached is None:
        yield PodAttached(
            pod_uid=uid,
            pod=name,
            quota=desired.quota,
            request=desired.request,
            tree=desired.tree,
            preemptible=desired.preemptible,
            matched_by=desired.matched_by,
        )
    elif (attached.quota, attached.tree, attached.preemptible) != (desired.quota, desired.tree, desired.preemptible):
        yield PodMoved(
            pod_uid=uid,
            pod=name,
            before=attached.quota,
            quota=desired.quota,
            request=desired.request,
            tree=desired.tree,
            preemptible=desired.preemptible,
            matched_by=desired.matched_by,
        )
    elif attached.request != desired.request:
        yield PodResized(pod_uid=uid, pod=name, quota=desired.quota, before=attached.request, after=desired.request)
    if charged or not desired.charged:
        return
    placement, ours = state.placements.get(uid), state.is_placed(uid)
    yield PodCharged(
        pod_uid=uid,
        pod=name,
        quota=desired.quota,
        request=desired.request,
        cycle=placement.cycle if placement and ours else 0,
        reason="reserve" if ours else "bound-elsewhere",
    )


def _release_reason(state: LedgerState, uid: str) -> str:
    pod = state.pods.entries[uid].observed
    return "deleted" if pod is None else "terminal" if pod.ended else "unmanaged"


def _revert_reason(state: LedgerState, uid: str, attached: AttachedPod) -> str:
    placement = state.placements.get(uid)
    if attached.epoch == 0 or (placement is not None and placement.cycle == attached.cycle and placement.seq):
        return "bind-refused"
    return "epoch-began" if attached.epoch < state.epoch else "cycle-ended"
