"""Execution of intents of other services: each ends in one outcome, with the gateway's texts."""

from collections.abc import Mapping
from operator import itemgetter

from services.simulator.api.api_errors import ApiError
from services.simulator.api.api_transaction import ApiTransaction
from services.simulator.api.object_conversion import as_json, merged, typed
from services.simulator.api.resource_kinds import BY_NAME, PODS, Resource
from services.simulator.state import Intent, SimulatorState, fields_of, uid_of
from shared.domain.fields_written_once import is_written_once
from shared.domain.held_place import lost_place
from shared.events import Cause, Event
from shared.events.cluster import (
    BindRejected,
    DesiredStateApplied,
    DesiredStateRejected,
    DesiredStateSuperseded,
    EvictionFailed,
    EvictionRejected,
    PodBound,
    PodEvicted,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.pod import Pod, PodCondition
from shared.kube.resource_names import RESERVATIONS
from shared.kube.system_annotations import allocations_in
from shared.runtime.intent_rights import refused_outcome

INTENTS_PER_STEP = 1_000
"""Intents that one step executes: a step must not block the event loop for long. The rest follow in the next step."""

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
EVICTION = "EvictionByEvictionAPI"


def execute(api: ApiTransaction, state: SimulatorState) -> None:
    """Executes open intents and records their outcomes: the oldest of each context first, INTENTS_PER_STEP at most."""
    left = INTENTS_PER_STEP
    for context, intents in sorted(state.open_intents.items()):
        newest = _newest_decisions(intents)
        for seq in sorted(intents)[:left]:
            _execute(api, state, Cause(context, seq), intents[seq], newest)
            left -= 1


def _newest_decisions(intents: Mapping[int, Intent]) -> dict[str, int]:
    """Returns pod uid -> seq of the scheduler's newest open intent about the pod."""
    newest: dict[str, int] = {}
    for seq, intent in intents.items():
        if isinstance(intent, PodPlaced | PodUnschedulable):
            newest[intent.pod_uid] = max(seq, newest.get(intent.pod_uid, 0))
    return newest


def _execute(
    api: ApiTransaction, state: SimulatorState, cause: Cause, intent: Intent, newest: Mapping[str, int]
) -> None:
    if reason := state.refusal(cause.context, intent):
        refused = refused_outcome(intent, reason)
        api.record_outcome(refused, cause, refused.pod_uid or None)
        return
    match intent:
        case PodPlaced():
            bind(api, cause, intent)
        case PodUnschedulable():
            mark_unschedulable(api, cause, intent, superseded=newest[intent.pod_uid] > cause.seq)
        case EvictionRequested():
            evict(api, cause, intent)
        case FieldsDesired() | ObjectDesired():
            apply_desired_state(api, state, cause, intent)


def bind(api: ApiTransaction, cause: Cause, intent: PodPlaced) -> None:
    """Binds a pod. A pod that is on that node already counts as bound."""
    pod = api.pod(intent.pod)
    try:
        if not (pod and (pod.metadata.uid, pod.spec.node_name) == (intent.pod_uid, intent.node)):
            api.bind(intent.pod, intent.pod_uid, intent.node, intent.annotations)
    except ApiError as error:
        rejected = BindRejected(pod=intent.pod, pod_uid=intent.pod_uid, reason=str(error))
        api.record_outcome(rejected, cause, intent.pod_uid)
    else:
        bound = PodBound(
            pod=intent.pod, pod_uid=intent.pod_uid, node=intent.node, allocations=allocations_in(intent.annotations)
        )
        api.record_outcome(bound, cause, intent.pod_uid)


def mark_unschedulable(api: ApiTransaction, cause: Cause, intent: PodUnschedulable, *, superseded: bool) -> None:
    """Writes the pod's condition, unless the pod is bound or gone, or the scheduler has a newer intent about it."""
    pod = api.pod(intent.pod)
    if superseded or pod is None or pod.metadata.uid != intent.pod_uid or pod.spec.node_name:
        outcome: Event = DesiredStateSuperseded(resource=PODS.name, name=intent.pod, fields=POD_SCHEDULED)
    else:
        condition = PodCondition(type=POD_SCHEDULED, status="False", reason=UNSCHEDULABLE, message=intent.message)
        api.set_condition(pod, condition)
        outcome = DesiredStateApplied(resource=PODS.name, name=intent.pod, fields=POD_SCHEDULED)
    api.record_outcome(outcome, cause, intent.pod_uid)


def evict(api: ApiTransaction, cause: Cause, intent: EvictionRequested) -> None:
    """Evicts a pod. There are no disruption budgets here, so it succeeds until its deadline, also for a deleted pod."""
    pod = api.pod(intent.pod)
    if 0 < intent.deadline_ns < api.now_ns:
        late = EvictionFailed(pod=intent.pod, pod_uid=intent.pod_uid, reason="its deadline has passed")
        api.record_outcome(late, cause, intent.pod_uid)
        return
    if pod and pod.metadata.uid == intent.pod_uid:
        held = api.find(RESERVATIONS, intent.reservation) if intent.reservation else None
        leaves = pod.metadata.deletion_timestamp
        if intent.reservation and not leaves and (lost := lost_place(intent.reservation, held)):
            api.record_outcome(
                EvictionRejected(pod=intent.pod, pod_uid=intent.pod_uid, reason=lost), cause, intent.pod_uid
            )
            return
        why = PodCondition(type="DisruptionTarget", status="True", reason=EVICTION, message=intent.reason)
        api.end_pod(pod, intent.grace_period_s, why)
    api.record_outcome(_evicted(intent, pod), cause, intent.pod_uid)


def _evicted(intent: EvictionRequested, pod: Pod | None) -> PodEvicted:
    """Returns the outcome with the node and the workload of the pod, as the gateway records it; without for one gone."""
    if pod is None or pod.metadata.uid != intent.pod_uid:
        return PodEvicted(pod=intent.pod, pod_uid=intent.pod_uid)
    node, owner = pod.spec.node_name or "", pod.metadata.controller
    workload = f"{owner.kind}/{owner.name}" if owner else ""
    return PodEvicted(pod=intent.pod, pod_uid=intent.pod_uid, node=node, workload=workload, without_node=not node)


def apply_desired_state(
    api: ApiTransaction, state: SimulatorState, cause: Cause, intent: FieldsDesired | ObjectDesired
) -> None:
    """Applies a desired state, unless a newer one of its field group exists or another object has that name."""
    resource, name, fields = intent.resource, intent.name, fields_of(intent)
    newest = state.desired_states.get((resource, name), {}).get((cause.context, fields))
    outcome: Event = DesiredStateSuperseded(resource=resource, name=name, fields=fields)
    try:
        if newest and newest.seq == cause.seq and apply_to_object(api, intent):
            outcome = DesiredStateApplied(resource=resource, name=name, fields=fields)
    except ApiError as error:
        outcome = DesiredStateRejected(resource=resource, name=name, fields=fields, reason=str(error))
    api.record_outcome(outcome, cause)


def apply_to_object(api: ApiTransaction, intent: FieldsDesired | ObjectDesired) -> bool:
    """Writes a desired state into its object. Returns False when another object has that name.

    Raises:
        ApiError: there is no object to write to, or the API does not take it.
    """
    stored = api.find(intent.resource, intent.name)
    resource = resource_named(intent)
    if isinstance(intent, FieldsDesired):
        if stored is not None and intent.uid and uid_of(stored) != intent.uid:
            return False
        api.patch(resource, intent.name, intent.patch, status=intent.subresource == "status")
        return True
    if intent.body is None:
        if stored is not None and intent.uid in ("", uid_of(stored)):
            api.delete(resource, intent.name)
        return True
    if stored is None:
        namespace, _, name = intent.name.rpartition("/")
        metadata = dict(intent.body.get("metadata") or {}) | {"name": name, "namespace": namespace}
        api.create(resource, typed(resource, intent.body | {"metadata": metadata}))
        return True
    plain = as_json(resource, stored)
    kept = {name: value for name, value in plain.items() if name in {"apiVersion", "kind", "metadata", "status"}}
    desired = {name: value for name, value in intent.body.items() if name not in kept}
    labels = {name: (intent.body.get("metadata") or {}).get(name) for name in ("labels", "annotations")}
    api.put(resource.name, intent.name, typed(resource, merged(kept, {"metadata": labels}) | desired))
    return True


def resource_named(intent: FieldsDesired | ObjectDesired) -> Resource:
    """Returns the resource of a desired state; a resource that is not in RESOURCES is a custom resource."""
    known = BY_NAME.get(intent.resource)
    if known:
        return known
    plural, _, group = intent.resource.partition(".")
    body = (intent.body if isinstance(intent, ObjectDesired) else None) or {}
    kind = str(body.get("kind") or plural)
    return Resource(
        intent.resource, kind, str(body.get("apiVersion") or f"{group}/v1"), "/" in intent.name, status=True
    )


def reapply_desired_states(api: ApiTransaction, state: SimulatorState) -> None:
    """Writes desired states again where this step changed their objects; those of a deleted object end."""
    for resource, name in [place for place in api.changed if place in state.desired_states]:
        is_deleted = api.find(resource, name) is None
        for (context, fields), desired_state in sorted(state.desired_states[resource, name].items(), key=itemgetter(0)):
            cause, desired = Cause(context, desired_state.seq), desired_state.intent
            if desired_state.seq in state.open_intents.get(context, {}):
                continue  # its outcome is drafted, or comes with the next step
            if isinstance(desired, FieldsDesired) and is_written_once(desired):
                continue
            if is_deleted and not (isinstance(desired, ObjectDesired) and desired.body is None):
                api.record_outcome(DesiredStateSuperseded(resource=resource, name=name, fields=fields), cause)
                continue
            try:
                apply_to_object(api, desired)
            except ApiError as error:
                rejected = DesiredStateRejected(resource=resource, name=name, fields=fields, reason=str(error))
                api.record_outcome(rejected, cause)
