"""State of the gateway: the objects that the log records, and the intents without an outcome.

Objects themselves stay in the API and in the log; a digest of each is enough to detect a change. Contexts have no order
among each other: an outcome (in `cluster`) may be read before the intent (in `scheduling`) that it answers, so
`early_outcomes` keeps such outcomes until their intents arrive.
"""

from operator import itemgetter
from typing import ClassVar, cast

from services.gateway.effects.intents import (
    POD_SCHEDULED,
    DesiredState,
    FieldGroup,
    Intent,
    ObjectRef,
    OneShot,
    field_group,
    object_ref,
)
from services.gateway.kube_api.api_types import KeptObject
from services.gateway.kube_api.resources import NODE_METRICS, NODES, PODS
from services.gateway.state_fields import (
    APPLIED,
    ENDED,
    TERMINATING,
    UNSCHEDULABLE,
    EarlyOutcome,
    KnownObject,
    ObservedPod,
    Suppressed,
    identity_of,
    result_of,
)
from services.gateway.state_snapshot import StoredState, by_cause, by_context, decode, encode
from services.gateway.webhooks.admission_state import AdmissionState
from shared.events import Cause, RecordedEvent
from shared.events.cluster import (
    OUTCOMES,
    AdmissionMissed,
    NodeDeleted,
    NodeMetricDeleted,
    NodeMetricObserved,
    NodeObserved,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.events.log import WriterStarted
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod


class GatewayState:
    """Folds `cluster` (the gateway's own context) and the intents of every other context.

    Attributes:
        known: resource -> key -> last record of the object. The nodes are those in `known["nodes"]`.
        pods: key -> last record of the pod; the same mapping as `known["pods"]`.
        one_shots, desired: intents without an outcome, oldest first within a context; of desired states only the
            newest.
        superseded: desired states without an outcome that a newer one, or the placement of the pod, has replaced.
        newest: the newest desired state of each field group, from when it is read until it has ended.
        applied: the newest desired states that were written; they are written again after drift.
        suppressed: the newest desired states that shadow mode did not write; due again after a start without shadow
            mode.
        started_seq: `cluster` seq at which the gateway last started.
        admission: objects that the webhooks' rules read.
        late_admitted: uids of pods that were created past the webhooks and have been handled (`AdmissionMissed`).
        early_outcomes: outcomes read before their intents.
        field_groups: derived from `newest`: its field groups by object.
        queues: derived from `one_shots` and `desired`: intents by object; those of one context run in this order.
    """

    SCHEMA: ClassVar[int] = 6

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.pods: dict[str, ObservedPod] = {}
        self.known: dict[str, dict[str, KnownObject]] = self._known_with_pods({})
        self.one_shots: dict[Cause, OneShot] = {}
        self.desired: dict[Cause, DesiredState] = {}
        self.superseded: dict[Cause, DesiredState] = {}
        self.newest: dict[FieldGroup, Cause] = {}
        self.applied: dict[Cause, FieldsDesired | ObjectDesired] = {}
        self.suppressed: dict[Cause, Suppressed] = {}
        self.started_seq = 0
        self.admission = AdmissionState()
        self.late_admitted: dict[str, None] = {}
        self.early_outcomes: dict[Cause, EarlyOutcome] = {}
        self.field_groups: dict[ObjectRef, dict[FieldGroup, None]] = {}
        self.queues: dict[ObjectRef, dict[Cause, None]] = {}

    def apply(self, record: RecordedEvent) -> None:
        """Folds one event."""
        event = record.event
        match event:
            case PodObserved(pod=key, pod_uid=uid, object=pod):
                self._pod_observed(key, uid, pod)
            case NodeObserved(node=name, object=node):
                self._observed(NODES.name, name, node.metadata.uid, node)
            case NodeMetricObserved(node=name, object=metric):
                self._observed(NODE_METRICS.name, name, metric.metadata.uid, metric)
            case ObjectObserved(resource=resource, name=name, uid=uid, object=body):
                self._observed(resource, name, uid, body)
            case PodDeleted(pod=key, pod_uid=uid):
                self.late_admitted.pop(uid, None)
                self._deleted(PODS.name, key, uid)
            case NodeDeleted(node=name, node_uid=uid):
                self._deleted(NODES.name, name, uid)
            case NodeMetricDeleted(node=name):
                self._deleted(NODE_METRICS.name, name)
            case ObjectDeleted(resource=resource, name=name, uid=uid):
                self._deleted(resource, name, uid)
            case PodPlaced() | EvictionRequested():
                self._add_one_shot(Cause(record.context, record.seq), event)
            case PodUnschedulable() | FieldsDesired() | ObjectDesired():
                self._add_desired(Cause(record.context, record.seq), event)
            case _ if record.cause and isinstance(event, OUTCOMES):
                self._add_outcome(record.cause, result_of(record))
            case WriterStarted():
                self.started_seq = record.seq
            case AdmissionMissed(uid=uid):
                self.late_admitted[uid] = None
        self.admission.apply(event)
        self.positions[record.context] = record.seq

    # -- observations

    def pod(self, key: str, uid: str) -> ObservedPod | None:
        """Returns the pod with that uid; None if it was deleted, or recreated under another uid."""
        pod = self.pods.get(key)
        return pod if pod is not None and pod.uid == uid else None

    def _known_with_pods(self, known: dict[str, dict[str, KnownObject]]) -> dict[str, dict[str, KnownObject]]:
        return known | {PODS.name: cast("dict[str, KnownObject]", self.pods)}

    def _observed(self, resource: str, key: str, uid: str, kept: KeptObject) -> None:
        self.known.setdefault(resource, {})[key] = KnownObject(identity_of(uid, kept))

    def _pod_observed(self, key: str, uid: str, pod: Pod) -> None:
        before = self.pods.get(key)
        if before is not None and self.late_admitted and before.uid != uid:
            self.late_admitted.pop(before.uid, None)
        scheduled = pod.condition(POD_SCHEDULED)
        unschedulable = scheduled is not None and scheduled.status == "False"
        observed = ObservedPod(
            identity_of(uid, pod),
            node=pod.spec.node_name,
            scheduler=pod.spec.scheduler_name,
            quota=(pod.metadata.labels or {}).get(QUOTA_NAME, ""),
            flags=UNSCHEDULABLE * unschedulable | TERMINATING * (pod.metadata.deletion_timestamp is not None),
        )
        observed.share_strings()
        self.pods[key] = observed

    def _deleted(self, resource: str, key: str, uid: str = "") -> None:
        objects = self.known.get(resource, {})
        if key in objects and uid in ("", objects[key].uid):
            del objects[key]

    # -- intents and outcomes

    def _add_one_shot(self, cause: Cause, event: OneShot) -> None:
        # A binding sets the condition PodScheduled itself; written after it, PodScheduled=False would be wrong.
        if isinstance(event, PodPlaced):
            self._supersede(FieldGroup(PODS.name, event.pod, cause.context, POD_SCHEDULED))
        if self.early_outcomes.pop(cause, None) is None:
            self.one_shots[cause] = event
            self._enqueue(cause, event)

    def _add_desired(self, cause: Cause, event: DesiredState) -> None:
        group = field_group(cause.context, event)
        self._supersede(group)
        self._set_newest(group, cause)
        early = self.early_outcomes.pop(cause, None)
        if early is None:
            self.desired[cause] = event
            self._enqueue(cause, event)
        else:
            self._set_result(cause, event, ENDED if early.applied and _ends_once_applied(event) else early.result)

    def _supersede(self, group: FieldGroup) -> None:
        older = self.newest.get(group)
        if older is None:
            return
        self.applied.pop(older, None)
        self.suppressed.pop(older, None)
        without_outcome = self.desired.pop(older, None)
        if without_outcome is not None:
            self.superseded[older] = without_outcome
            self._dequeue(older, without_outcome)
        self._remove_newest(group)

    def _add_outcome(self, cause: Cause, result: int) -> None:
        if cause.seq > self.positions.get(cause.context, 0):
            before = self.early_outcomes.get(cause, EarlyOutcome(result, applied=False))
            self.early_outcomes[cause] = EarlyOutcome(
                ENDED if before.result == ENDED else result, before.applied or result == APPLIED
            )
            return
        self.superseded.pop(cause, None)
        intent = self.one_shots.pop(cause, None) or self.desired.pop(cause, None)
        if intent is not None:
            self._dequeue(cause, intent)
        suppressed = self.suppressed.pop(cause, None)
        desired = intent or self.applied.pop(cause, None) or (suppressed.desired if suppressed else None)
        if isinstance(desired, DesiredState):
            self._set_result(cause, desired, result)

    def _set_result(self, cause: Cause, desired: DesiredState, result: int) -> None:
        """Files a newest desired state by its result: as applied, as suppressed, or not at all if it has ended."""
        if result not in (ENDED, APPLIED):
            self.suppressed[cause] = Suppressed(desired, result)
        elif result == ENDED or _ends_once_applied(desired):
            self._remove_newest(field_group(cause.context, desired))
        else:
            assert not isinstance(desired, PodUnschedulable), "it has ended"
            self.applied[cause] = desired

    def _set_newest(self, group: FieldGroup, cause: Cause) -> None:
        self.newest[group] = cause
        self.field_groups.setdefault(ObjectRef(group.resource, group.key), {})[group] = None

    def _remove_newest(self, group: FieldGroup) -> None:
        del self.newest[group]
        ref = ObjectRef(group.resource, group.key)
        groups = self.field_groups[ref]
        del groups[group]
        if not groups:
            del self.field_groups[ref]

    def _enqueue(self, cause: Cause, intent: Intent) -> None:
        self.queues.setdefault(object_ref(intent), {})[cause] = None

    def _dequeue(self, cause: Cause, intent: Intent) -> None:
        ref = object_ref(intent)
        queue = self.queues[ref]
        del queue[cause]
        if not queue:
            del self.queues[ref]

    # -- snapshots

    def encode(self) -> bytes:
        """Encodes the State in its canonical form: see `shared.fold.State`."""
        return encode(
            StoredState(
                positions=self.positions,
                known={
                    resource: objects for resource, objects in self.known.items() if objects and resource != PODS.name
                },
                pods=self.pods,
                one_shots=by_context(self.one_shots),
                desired=by_context(self.desired),
                superseded=by_context(self.superseded),
                applied=by_context(self.applied),
                suppressed=by_context(self.suppressed),
                started_seq=self.started_seq,
                early_outcomes=by_context(self.early_outcomes),
                admission=self.admission.stored(),
                late_admitted=sorted(self.late_admitted),
            )
        )

    def restore(self, data: bytes) -> None:
        """Restores what `encode` wrote, and derives the rest."""
        stored = decode(data)
        self.positions, self.pods = stored.positions, stored.pods
        for pod in self.pods.values():
            pod.share_strings()
        self.known = self._known_with_pods(stored.known)
        self.one_shots, self.desired = by_cause(stored.one_shots), by_cause(stored.desired)
        self.superseded = by_cause(stored.superseded)
        self.applied, self.early_outcomes = by_cause(stored.applied), by_cause(stored.early_outcomes)
        self.suppressed, self.started_seq = by_cause(stored.suppressed), stored.started_seq
        self.admission.restore(stored.admission)
        self.late_admitted = dict.fromkeys(stored.late_admitted)
        suppressed = [(cause, each.desired) for cause, each in self.suppressed.items()]
        for cause, desired in (*self.desired.items(), *self.applied.items(), *suppressed):
            self._set_newest(field_group(cause.context, desired), cause)
        for cause, intent in sorted((*self.one_shots.items(), *self.desired.items()), key=itemgetter(0)):
            self._enqueue(cause, intent)


def _ends_once_applied(desired: DesiredState) -> bool:
    """Reports whether a desired state ends once it is applied: a pod's condition, and the absence of an object."""
    return isinstance(desired, PodUnschedulable) or (isinstance(desired, ObjectDesired) and desired.body is None)
