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

from typing import Any

from services.gateway import decide, drift
from services.gateway.api import APPLY, STRATEGIC, KubeApi
from services.gateway.kubernetes_events import unschedulable_event
from services.gateway.problems import (
    Ambiguous,
    ApiProblem,
    BudgetRefuses,
    Busy,
    Conflict,
    NamespaceTerminating,
    NotFound,
    Rejected,
)
from services.gateway.resources import PODS, RESOURCES, Resource
from services.gateway.state import PodSeen
from services.gateway.trim import Seen
from shared.events import Event
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.instants import instant_text
from shared.kube.pod import Pod

WRITES_ON_CONFLICT = 4
"""How often a level is read and written again when others write the object at the same time, within one try."""

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
        return decide.rejected(intent, str(error))
    except (Conflict, Ambiguous) as error:  # bound already, another pod, going away, or no answer: the pod itself knows
        pod = _pod(await api.find(PODS, intent.pod))
        if pod is None or pod.metadata.uid != intent.pod_uid:
            return decide.rejected(intent, f"{intent.pod} is gone")
        if pod.spec.node_name != intent.node:
            if not pod.spec.node_name and isinstance(error, Ambiguous):
                raise Busy(str(error)) from error
            return decide.rejected(intent, _why_not_bound(pod, error))
    return decide.bound(intent)


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
        return decide.evicted(intent)
    except (NamespaceTerminating, Rejected) as error:
        return decide.rejected(intent, str(error))
    except (Conflict, BudgetRefuses, Ambiguous) as error:
        pod = _pod(await api.find(PODS, intent.pod))
        if pod is None or pod.metadata.uid != intent.pod_uid or pod.metadata.deletion_timestamp:
            return decide.evicted(intent)
        if isinstance(error, BudgetRefuses):
            return decide.rejected(intent, str(error))
        raise Busy(str(error)) from error
    return decide.evicted(intent)


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
            return decide.superseded(intent)
        return decide.rejected(intent, str(error))
    except Ambiguous as error:
        pod_now = _pod(await api.find(PODS, intent.pod))
        said = pod_now.condition("PodScheduled") if pod_now else None
        if said is None or said.message != intent.message:
            raise Busy(str(error)) from error
    return decide.written(intent)


async def tell_unschedulable(api: KubeApi, intent: PodUnschedulable, pod: PodSeen, *, now_ns: int) -> None:
    """Record the Kubernetes Event that `kubectl describe pod` shows.

    Raises:
        ApiProblem: it was not recorded. The condition says the same, so nothing is lost.
    """
    namespace, _, _ = intent.pod.rpartition("/")
    event, repeated = unschedulable_event(intent, pod.scheduler, now_ns=now_ns)
    await api.record_event(namespace, event, repeated)


async def write_fields(api: KubeApi, intent: FieldsDesired, version: str) -> tuple[Event, Seen | None]:
    """Give a field group of an existing object its values. Twice is harmless: a merge patch says how it must be.

    Args:
        version: the object's newest known resourceVersion, on which the write is conditional; empty reads it first.

    Returns:
        The outcome, and the object as it is after the write.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not patch.
    """
    resource = RESOURCES.get(intent.resource)
    if resource is None:
        return decide.rejected(intent, f"{intent.resource} is no resource that the gateway writes"), None
    for _ in range(WRITES_ON_CONFLICT):
        if not version:
            there = await api.find(resource, intent.name)
            if there is None:
                return decide.rejected(intent, f"{intent.resource} {intent.name} is gone"), None
            if intent.uid and there.uid != intent.uid:
                return decide.superseded(intent), None
            if drift.agrees(intent, there):
                return decide.written(intent), there
            version = there.version
        metadata = intent.patch.get("metadata", {}) | {"resourceVersion": version}
        if intent.uid:
            metadata["uid"] = intent.uid
        try:
            seen = await api.patch(
                resource, intent.name, intent.patch | {"metadata": metadata}, subresource=intent.subresource
            )
        except Conflict:
            version = ""
            continue
        except Ambiguous as error:  # done if the object says so
            there = await api.find(resource, intent.name)
            if there is None or not drift.agrees(intent, there):
                raise Busy(str(error)) from error
            return decide.written(intent), there
        except REFUSALS as error:
            if intent.uid and (there := await api.find(resource, intent.name)) and there.uid != intent.uid:
                return decide.superseded(intent), None  # the server calls another uid invalid
            return decide.rejected(intent, str(error)), None
        return decide.written(intent), seen
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


async def write_object(api: KubeApi, intent: ObjectDesired, version: str, uid: str) -> tuple[Event, Seen | None]:
    """Make a custom resource exist with this content, or not exist.

    Written by server-side apply: one request creates or updates, takes away what an earlier level said and this one does not,
    and leaves status and the fields of others alone. Twice is harmless for that reason.

    Args:
        version: the object's newest known resourceVersion, on which the write is conditional; empty when none is known.
        uid: the object's, when it is known; what is deleted.

    Returns:
        The outcome, and the object as it is after the write.

    Raises:
        Busy: it was not done, and may be later.
        Forbidden: the account may not do this.
    """
    resource = RESOURCES.get(intent.resource)
    if resource is None:
        return decide.rejected(intent, f"{intent.resource} is no resource that the gateway writes"), None
    if intent.body is None:
        return await _delete(api, resource, intent, uid), None
    for _ in range(WRITES_ON_CONFLICT):
        try:
            seen = await api.patch(resource, intent.name, _applied(resource, intent, version), how=APPLY)
        except Conflict:  # written by another meanwhile, or gone
            there = await api.find(resource, intent.name)
            version = there.version if there else ""
            continue
        except Ambiguous as error:  # what it should have taken away cannot be read back: apply again
            raise Busy(str(error)) from error
        except REFUSALS as error:
            return decide.rejected(intent, str(error)), None
        return decide.written(intent), seen
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


async def _delete(api: KubeApi, resource: Resource, intent: ObjectDesired, uid: str) -> Event:
    for _ in range(WRITES_ON_CONFLICT):
        try:
            await api.delete(resource, intent.name, uid=uid)
        except NotFound:
            return decide.written(intent)
        except Conflict:  # another object has the name by now; it must not be there either
            there = await api.find(resource, intent.name)
            if there is None:
                return decide.written(intent)
            uid = there.uid
            continue
        except Ambiguous as error:
            if await api.find(resource, intent.name) is not None:
                raise Busy(str(error)) from error
        except (NamespaceTerminating, Rejected) as error:
            return decide.rejected(intent, str(error))
        return decide.written(intent)
    raise Busy(f"{intent.resource} {intent.name} is being written by others")


def _applied(resource: Resource, intent: ObjectDesired, version: str) -> dict[str, Any]:
    """The body of an apply: it must name what it is about, and may name the version that it rests on."""
    body = dict(intent.body or {})
    namespace, _, name = intent.name.rpartition("/")
    metadata: dict[str, Any] = {"name": name, **body.get("metadata", {})}
    if namespace:
        metadata["namespace"] = namespace
    if version:
        metadata["resourceVersion"] = version
    return body | {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _pod(seen: Seen | None) -> Pod | None:
    return seen.object if seen is not None and isinstance(seen.object, Pod) else None
