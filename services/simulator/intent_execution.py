"""Carrying out what others decided: each intent ends in one outcome, worded like the gateway's."""

from collections.abc import Mapping
from operator import itemgetter

from services.simulator.api.api_errors import Refused
from services.simulator.api.api_server import Cluster
from services.simulator.api.object_encoding import as_json, merged, typed
from services.simulator.api.resource_kinds import BY_NAME, PODS, Resource
from services.simulator.state import Intent, SimulatorState, fields_of, uid_of
from shared.events import Cause, Event
from shared.events.cluster import (
    BindRejected,
    DesiredStateApplied,
    DesiredStateRejected,
    DesiredStateSuperseded,
    PodBound,
    PodEvicted,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.pod import PodCondition

AT_ONCE = 1_000
"""Intents that one step carries out: a step must not hold the loop for long. What is left comes with the next."""

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
EVICTION = "EvictionByEvictionAPI"


def carry_out(cluster: Cluster, state: SimulatorState) -> None:
    """Make the cluster agree with open intents and record how each ended: the oldest of each context first, AT_ONCE at most."""
    left = AT_ONCE
    for context, intents in sorted(state.open.items()):
        verdicts = _newest_verdicts(intents)
        for seq in sorted(intents)[:left]:
            _carry_out(cluster, state, Cause(context, seq), intents[seq], verdicts)
            left -= 1


def _newest_verdicts(intents: Mapping[int, Intent]) -> dict[str, int]:
    """Pod uid -> seq of the newest open word of the scheduler about it."""
    verdicts: dict[str, int] = {}
    for seq, intent in intents.items():
        if isinstance(intent, PodPlaced | PodUnschedulable):
            verdicts[intent.pod_uid] = max(seq, verdicts.get(intent.pod_uid, 0))
    return verdicts


def _carry_out(
    cluster: Cluster, state: SimulatorState, cause: Cause, intent: Intent, verdicts: Mapping[str, int]
) -> None:
    match intent:
        case PodPlaced():
            bind(cluster, cause, intent)
        case PodUnschedulable():
            mark_unschedulable(cluster, cause, intent, superseded=verdicts[intent.pod_uid] > cause.seq)
        case EvictionRequested():
            evict(cluster, cause, intent)
        case FieldsDesired() | ObjectDesired():
            write_level(cluster, state, cause, intent)


def bind(cluster: Cluster, cause: Cause, intent: PodPlaced) -> None:
    """Bind a pod. One that is on that node already counts as bound."""
    pod = cluster.pod(intent.pod)
    try:
        if not (pod and (pod.metadata.uid, pod.spec.node_name) == (intent.pod_uid, intent.node)):
            cluster.bind(intent.pod, intent.pod_uid, intent.node, intent.annotations)
    except Refused as refusal:
        rejected = BindRejected(pod=intent.pod, pod_uid=intent.pod_uid, reason=str(refusal))
        cluster.answer(rejected, cause, intent.pod_uid)
    else:
        cluster.answer(PodBound(pod=intent.pod, pod_uid=intent.pod_uid, node=intent.node), cause, intent.pod_uid)


def mark_unschedulable(cluster: Cluster, cause: Cause, intent: PodUnschedulable, *, superseded: bool) -> None:
    """Write the pod's condition, unless the pod is bound or gone, or the scheduler has said something newer of it."""
    pod = cluster.pod(intent.pod)
    if superseded or pod is None or pod.metadata.uid != intent.pod_uid or pod.spec.node_name:
        outcome: Event = DesiredStateSuperseded(resource=PODS.name, name=intent.pod, fields=POD_SCHEDULED)
    else:
        condition = PodCondition(type=POD_SCHEDULED, status="False", reason=UNSCHEDULABLE, message=intent.message)
        cluster.set_condition(pod, condition)
        outcome = DesiredStateApplied(resource=PODS.name, name=intent.pod, fields=POD_SCHEDULED)
    cluster.answer(outcome, cause, intent.pod_uid)


def evict(cluster: Cluster, cause: Cause, intent: EvictionRequested) -> None:
    """Evict a pod. There are no disruption budgets here, so it succeeds; so it does for a pod that is gone."""
    pod = cluster.pod(intent.pod)
    if pod and pod.metadata.uid == intent.pod_uid:
        why = PodCondition(type="DisruptionTarget", status="True", reason=EVICTION, message=intent.reason)
        cluster.end_pod(pod, intent.grace_period_s, why)
    cluster.answer(PodEvicted(pod=intent.pod, pod_uid=intent.pod_uid), cause, intent.pod_uid)


def write_level(cluster: Cluster, state: SimulatorState, cause: Cause, intent: FieldsDesired | ObjectDesired) -> None:
    """Write a level, unless a newer one of its field group is known already or another object has the place."""
    resource, name, fields = intent.resource, intent.name, fields_of(intent)
    newest = state.levels.get((resource, name), {}).get((cause.context, fields))
    outcome: Event = DesiredStateSuperseded(resource=resource, name=name, fields=fields)
    try:
        if newest and newest.seq == cause.seq and enforce(cluster, intent):
            outcome = DesiredStateApplied(resource=resource, name=name, fields=fields)
    except Refused as refusal:
        outcome = DesiredStateRejected(resource=resource, name=name, fields=fields, reason=str(refusal))
    cluster.answer(outcome, cause)


def enforce(cluster: Cluster, intent: FieldsDesired | ObjectDesired) -> bool:
    """Make an object agree with a level; False when another object has its place.

    Raises:
        Refused: there is no object to write to, or the API does not take it.
    """
    held = cluster.find(intent.resource, intent.name)
    resource = resource_named(intent)
    if isinstance(intent, FieldsDesired):
        if held is not None and intent.uid and uid_of(held) != intent.uid:
            return False
        cluster.patch(resource, intent.name, intent.patch, status=intent.subresource == "status")
        return True
    if intent.body is None:
        if held is not None:
            cluster.delete(resource, intent.name)
        return True
    if held is None:
        namespace, _, name = intent.name.rpartition("/")
        metadata = dict(intent.body.get("metadata") or {}) | {"name": name, "namespace": namespace}
        cluster.create(resource, typed(resource, intent.body | {"metadata": metadata}))
        return True
    plain = as_json(resource, held)
    kept = {name: value for name, value in plain.items() if name in {"apiVersion", "kind", "metadata", "status"}}
    wanted = {name: value for name, value in intent.body.items() if name not in kept}
    labels = {name: (intent.body.get("metadata") or {}).get(name) for name in ("labels", "annotations")}
    cluster.put(resource.name, intent.name, typed(resource, merged(kept, {"metadata": labels}) | wanted))
    return True


def resource_named(intent: FieldsDesired | ObjectDesired) -> Resource:
    """The resource that a level is about; one that is not in the catalogue is a custom resource."""
    known = BY_NAME.get(intent.resource)
    if known:
        return known
    plural, _, group = intent.resource.partition(".")
    body = (intent.body if isinstance(intent, ObjectDesired) else None) or {}
    kind = str(body.get("kind") or plural)
    return Resource(
        intent.resource, kind, str(body.get("apiVersion") or f"{group}/v1"), "/" in intent.name, status=True
    )


def keep_levels(cluster: Cluster, state: SimulatorState) -> None:
    """Write the levels of what this step changed again where they no longer hold; those of an object that is gone end."""
    for resource, name in [place for place in cluster.changed if place in state.levels]:
        gone = cluster.find(resource, name) is None
        for (context, fields), level in sorted(state.levels[resource, name].items(), key=itemgetter(0)):
            cause, wanted = Cause(context, level.seq), level.intent
            if level.seq in state.open.get(context, {}):
                continue  # its outcome is drafted, or comes with the next step
            if gone and not (isinstance(wanted, ObjectDesired) and wanted.body is None):
                cluster.answer(DesiredStateSuperseded(resource=resource, name=name, fields=fields), cause)
                continue
            try:
                enforce(cluster, wanted)
            except Refused as refusal:
                rejected = DesiredStateRejected(resource=resource, name=name, fields=fields, reason=str(refusal))
                cluster.answer(rejected, cause)
