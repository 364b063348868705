"""Writes to pods: bindings, evictions, and the condition of an unschedulable pod; and the outcome of each response.

The table covers desired_state_writes.py too (desired state).

| response | bind | evict | desired state |
|---|---|---|---|
| 404 | rejected | deleted: success | rejected; to be deleted: success; a pod's condition: superseded |
| 403, namespace terminating | rejected | rejected | rejected |
| 403, any other | MissingPermission | MissingPermission | MissingPermission |
| 409 | read back: same node is success | another uid: deleted, success | read again, write again |
| 429, disruption budget | | read back: EvictionRejected | |
| other 429, 5xx, no connection | back off | back off | back off |
| 400, 422, other 4xx | rejected | rejected | rejected |
| no response | read back | read back | read back |

effect_runner.py implements the backoff, the number of tries and MissingPermission; read_back_confirmations.py reads a
pod before a binding or an eviction counts as failed. Each function here is one try, and each may run twice, since a
crash may come between the response and the append of the outcome: its docstring states why that is harmless.
"""

from services.gateway.effects import outcome_events
from services.gateway.effects.intent_types import OneShot
from services.gateway.effects.node_lock import lock_node
from services.gateway.effects.pod_kubernetes_events import events_of
from services.gateway.known_objects import ObservedPod
from services.gateway.kube_api.api_errors import (
    REFUSALS,
    WRITES_ON_CONFLICT,
    Ambiguous,
    ApiError,
    BlockedByBudget,
    Busy,
    Conflict,
    NamespaceTerminating,
    NotFound,
    Rejected,
    Unconfirmed,
)
from services.gateway.kube_api.client import STRATEGIC, KubeApi
from services.gateway.kube_api.resources import PODS, RESERVATIONS
from services.gateway.kube_api.unused_field_removal import ObservedObject
from shared.domain.held_place import lost_place
from shared.events import Event
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import instant_text
from shared.kube.pod import Pod


async def carry_out(api: KubeApi, intent: OneShot, *, now_ns: int) -> Event:
    """Binds or evicts the pod.

    Raises:
        Busy: not done, and worth a retry; `Unconfirmed` when it may have been done.
        Forbidden: the account may not do this.
    """
    return await bind(api, intent, now_ns=now_ns) if isinstance(intent, PodPlaced) else await evict(api, intent)


async def bind(api: KubeApi, intent: PodPlaced, *, now_ns: int) -> Event:
    """Binds the pod to its node, under the node's lock if the intent names one. Twice is harmless: a pod that is already
    on that node counts as bound.

    Raises:
        Busy: not done, and worth a retry.
        Forbidden: the account may not bind.
    """
    if intent.node_lock:
        # A pod that an earlier try has bound needs no lock: its plugin may have removed the lock already.
        ended = await outcome_shown(api, intent) or await lock_node(api, intent, now_ns=now_ns)
        if ended is not None:
            return ended
    try:
        await api.create_binding(intent.pod, uid=intent.pod_uid, node=intent.node, annotations=intent.annotations)
    except REFUSALS as error:
        return outcome_events.rejected(intent, str(error))
    except Conflict as error:
        # Bound already, another uid, or terminating.
        return await outcome_shown(api, intent) or outcome_events.rejected(intent, str(error))
    except Ambiguous as error:
        return await _outcome_without_answer(api, intent, error)
    return outcome_events.bound(intent)


async def evict(api: KubeApi, intent: EvictionRequested) -> Event:
    """Evicts the pod, if its destination is still held. Twice is harmless: the uid is a precondition, and a terminating pod
    counts as evicted.

    Raises:
        Busy: not done, and worth a retry.
        Forbidden: the account may not evict.
    """
    if intent.reservation:
        held = await api.find(RESERVATIONS, intent.reservation)
        if lost := lost_place(intent.reservation, None if held is None else held.object):
            # The successor of a pod that an earlier try has evicted may be what uses the place.
            return await outcome_shown(api, intent) or outcome_events.rejected(intent, lost)
    try:
        if intent.deletes:
            await api.delete(PODS, intent.pod, uid=intent.pod_uid, grace_period_s=intent.grace_period_s)
        else:
            await api.evict(intent.pod, uid=intent.pod_uid, grace_period_s=intent.grace_period_s)
    except NotFound:
        return outcome_events.evicted(intent)
    except (NamespaceTerminating, Rejected) as error:
        return outcome_events.rejected(intent, str(error))
    except BlockedByBudget as error:
        return await outcome_shown(api, intent) or outcome_events.rejected(intent, str(error))
    except Conflict as error:
        if (shown := await outcome_shown(api, intent)) is None:
            raise Busy(str(error)) from error
        return shown
    except Ambiguous as error:
        return await _outcome_without_answer(api, intent, error)
    return outcome_events.evicted(intent)


async def outcome_shown(api: KubeApi, intent: OneShot) -> Event | None:
    """Reads the pod; returns the outcome that it shows, or None while it has no node, or is not terminating.

    Raises:
        ApiError: it cannot be read.
    """
    pod = _pod(await api.find(PODS, intent.pod))
    there = pod is not None and pod.metadata.uid == intent.pod_uid
    if isinstance(intent, EvictionRequested):
        terminating = pod is None or not there or pod.metadata.deletion_timestamp
        return outcome_events.evicted(intent) if terminating else None
    if pod is None or not there:
        return outcome_events.rejected(intent, f"{intent.pod} is gone")
    return outcome_events.of_node(intent, pod.spec.node_name)


async def _outcome_without_answer(api: KubeApi, intent: OneShot, error: Ambiguous) -> Event:
    """Returns the outcome that the pod shows after a request without an answer.

    Raises:
        Unconfirmed: it shows none yet, or cannot be read.
    """
    try:
        shown = await outcome_shown(api, intent)
    except ApiError as unread:
        raise Unconfirmed(f"{error}; {unread}") from error
    if shown is None:
        raise Unconfirmed(str(error)) from error
    return shown


async def write_unschedulable_condition(
    api: KubeApi, intent: PodUnschedulable, pod: ObservedPod, version: str, *, now_ns: int
) -> Event:
    """Writes the pod's condition PodScheduled=False.

    Twice is harmless: the condition is the same. The uid is a precondition, and so is the version: the server may
    execute a request that got no answer after the pod's binding, whose condition would be overwritten.

    Args:
        version: the pod's newest known resourceVersion; if empty it is read first.

    Raises:
        Busy: not done, and worth a retry.
        Forbidden: the account may not write the status of pods.
    """
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": intent.message,
        "lastProbeTime": None,
    }
    # lastTransitionTime changes with the status, not with the message.
    if not pod.unschedulable:
        condition["lastTransitionTime"] = instant_text(now_ns // 10**9 * 10**9)
    for _ in range(WRITES_ON_CONFLICT):
        if not version:
            there = await api.find(PODS, intent.pod)
            if there is None or there.uid != intent.pod_uid or (found := _pod(there)) is None or found.spec.node_name:
                return outcome_events.superseded(intent)
            version = there.version
        metadata = {"uid": intent.pod_uid, "resourceVersion": version}
        body = {"metadata": metadata, "status": {"conditions": [condition]}}
        try:
            await api.patch(PODS, intent.pod, body, subresource="status", how=STRATEGIC)
        except Conflict:
            version = ""
            continue
        except REFUSALS as error:
            # A patch with another uid is answered by 409 or 422, which do not distinguish it from other errors.
            there = await api.find(PODS, intent.pod)
            if there is None or there.uid != intent.pod_uid:
                return outcome_events.superseded(intent)
            return outcome_events.rejected(intent, str(error))
        except Ambiguous as error:
            pod_now = _pod(await api.find(PODS, intent.pod))
            condition_now = pod_now.condition("PodScheduled") if pod_now else None
            if condition_now is None or condition_now.message != intent.message:
                raise Busy(str(error)) from error
        return outcome_events.applied(intent)
    raise Busy(f"pod {intent.pod} is being written by others")


async def record_unschedulable_event(api: KubeApi, intent: PodUnschedulable, pod: ObservedPod, *, now_ns: int) -> None:
    """Records the Kubernetes Event that `kubectl describe pod` shows, and one about settings that are ignored.

    Raises:
        ApiError: not recorded. The pod's condition has the same message, so nothing is lost.
    """
    namespace, _, _ = intent.pod.rpartition("/")
    for event, repeated in events_of(intent, pod.scheduler, now_ns=now_ns):
        await api.record_event(namespace, event, repeated)


def _pod(seen: ObservedObject | None) -> Pod | None:
    return seen.object if seen is not None and isinstance(seen.object, Pod) else None
