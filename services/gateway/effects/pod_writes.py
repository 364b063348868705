"""What is done in the Kubernetes API for each kind of intent, and which answer leads to which outcome.

| answer | bind | evict | level |
|---|---|---|---|
| 404 | rejected | gone: success | rejected; to be deleted: success; a pod's condition: superseded |
| 403, namespace terminating | rejected | rejected | rejected |
| 403, any other | MissingPermission | MissingPermission | MissingPermission |
| 409 | read back: same node is success | another uid: gone, success | read again, write again |
| 429, disruption budget | | read back: EvictionRefused | |
| other 429, 5xx, no connection | back off | back off | back off |
| 400, 422, other 4xx | rejected | rejected | rejected |
| no answer | read back | read back | read back |

Backing off, counting tries and MissingPermission are the carrier's (carrier.py); each function here is one try, and each may
run twice: its docstring says why that is harmless.
"""

from services.gateway.effects import outcomes
from services.gateway.effects.kubernetes_events import unschedulable_event
from services.gateway.kube_api.api_errors import (
    Ambiguous,
    ApiProblem,
    BudgetRefuses,
    Busy,
    Conflict,
    NamespaceTerminating,
    NotFound,
    Rejected,
)
from services.gateway.kube_api.client import STRATEGIC, KubeApi
from services.gateway.kube_api.resources import PODS
from services.gateway.state import PodSeen
from services.gateway.watch.field_filter import Seen
from shared.events import Event
from shared.events.intents import EvictionRequested
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import instant_text
from shared.kube.pod import Pod

REFUSALS = (NotFound, NamespaceTerminating, Rejected)
"""Answers after which asking again is of no use."""


async def bind(api: KubeApi, intent: PodPlaced) -> Event:
    """Bind the pod to its node. Twice is harmless: a pod that is already on that node counts as bound.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not bind.
    """
    try:
        await api.create_binding(intent.pod, uid=intent.pod_uid, node=intent.node, annotations=intent.annotations)
    except REFUSALS as error:
        return outcomes.rejected(intent, str(error))
    except (Conflict, Ambiguous) as error:  # bound already, another pod, going away, or no answer: the pod itself knows
        pod = _pod(await api.find(PODS, intent.pod))
        if pod is None or pod.metadata.uid != intent.pod_uid:
            return outcomes.rejected(intent, f"{intent.pod} is gone")
        if pod.spec.node_name != intent.node:
            if not pod.spec.node_name and isinstance(error, Ambiguous):
                raise Busy(str(error)) from error
            return outcomes.rejected(intent, _why_not_bound(pod, error))
    return outcomes.bound(intent)


def _why_not_bound(pod: Pod, error: ApiProblem) -> str:
    if pod.spec.node_name:
        return f"{pod.metadata.key} is bound to {pod.spec.node_name} already"
    return str(error)


async def evict(api: KubeApi, intent: EvictionRequested) -> Event:
    """Evict the pod. Twice is harmless: the uid is a precondition, and a pod on its way out counts as evicted.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not evict.
    """
    try:
        await api.evict(intent.pod, uid=intent.pod_uid, grace_period_s=intent.grace_period_s)
    except NotFound:
        return outcomes.evicted(intent)
    except (NamespaceTerminating, Rejected) as error:
        return outcomes.rejected(intent, str(error))
    except (Conflict, BudgetRefuses, Ambiguous) as error:
        pod = _pod(await api.find(PODS, intent.pod))
        if pod is None or pod.metadata.uid != intent.pod_uid or pod.metadata.deletion_timestamp:
            return outcomes.evicted(intent)
        if isinstance(error, BudgetRefuses):
            return outcomes.rejected(intent, str(error))
        raise Busy(str(error)) from error
    return outcomes.evicted(intent)


async def report_unschedulable(api: KubeApi, intent: PodUnschedulable, pod: PodSeen, *, now_ns: int) -> Event:
    """Write the pod's condition PodScheduled=False, and tell people by a Kubernetes Event.

    Twice is harmless: the condition is the same, and the Event counts as one. The uid is a precondition.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not write the status of pods.
    """
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": intent.message,
        "lastProbeTime": None,
    }
    if not pod.waiting:  # the time of the transition, not of the text
        condition["lastTransitionTime"] = instant_text(now_ns // 10**9 * 10**9)
    body = {"metadata": {"uid": intent.pod_uid}, "status": {"conditions": [condition]}}
    try:
        await api.patch(PODS, intent.pod, body, subresource="status", how=STRATEGIC)
    except (*REFUSALS, Conflict) as error:  # the server calls another uid invalid
        there = await api.find(PODS, intent.pod)
        if there is None or there.uid != intent.pod_uid:  # there is nobody to tell
            return outcomes.superseded(intent)
        return outcomes.rejected(intent, str(error))
    except Ambiguous as error:
        pod_now = _pod(await api.find(PODS, intent.pod))
        said = pod_now.condition("PodScheduled") if pod_now else None
        if said is None or said.message != intent.message:
            raise Busy(str(error)) from error
    return outcomes.written(intent)


async def tell_unschedulable(api: KubeApi, intent: PodUnschedulable, pod: PodSeen, *, now_ns: int) -> None:
    """Record the Kubernetes Event that `kubectl describe pod` shows.

    Raises:
        ApiProblem: it was not recorded. The condition says the same, so nothing is lost.
    """
    namespace, _, _ = intent.pod.rpartition("/")
    event, repeated = unschedulable_event(intent, pod.scheduler, now_ns=now_ns)
    await api.record_event(namespace, event, repeated)


def _pod(seen: Seen | None) -> Pod | None:
    return seen.object if seen is not None and isinstance(seen.object, Pod) else None
