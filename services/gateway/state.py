"""State of the gateway: the objects that the log records, the intents, and the objects that the webhooks read.

Objects themselves stay in the API and in the log; a digest of each is enough to detect a change.
"""

from sys import intern
from typing import ClassVar, cast

from services.gateway.desired_state_outcome_codes import result_of
from services.gateway.effects.eviction_budget import EvictionRecord
from services.gateway.effects.intent_types import POD_SCHEDULED, Intent, OneShot
from services.gateway.intents_and_outcomes_index import IntentIndex
from services.gateway.known_objects import TERMINATING, UNSCHEDULABLE, KnownObject, ObservedPod, identity_of
from services.gateway.kube_api.decoding import KeptObject
from services.gateway.kube_api.resources import NODE_METRICS, NODES, PODS
from services.gateway.snapshot_schema import StoredState, decode, encode, restore_pods, store_pods
from services.gateway.webhooks.admission_state import AdmissionState
from shared.domain.node_metric_status import desired_status
from shared.events import Cause, RecordedEvent
from shared.events.base import without_basis
from shared.events.cluster import (
    OUTCOMES,
    AdmissionMissed,
    ClusterIdentified,
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
from shared.events.metrics import NodeReported
from shared.events.scheduling import PodPlaced, PodUnschedulable
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod
from shared.runtime.declared_intents import declared_refusal
from shared.runtime.intent_rights import Refusal, refused_outcome


class GatewayState:
    """Folds `cluster` (the gateway's own context) and the intents of every other context.

    Attributes:
        cluster: the cluster that the log describes; empty until it is recorded.
        log: id of the log; empty until it is recorded.
        known: resource -> key -> last record of the object. The nodes are those in `known["nodes"]`.
        pods: key -> last record of the pod; the same mapping as `known["pods"]`.
        intents: intents and their outcomes.
        started_seq: `cluster` seq at which the gateway last started.
        admission: objects that the webhooks' rules read.
        evictions: evictions of the newest hour, those that wait, and whether all are held.
        late_admitted: uids of pods that were created past the webhooks and have been handled (`AdmissionMissed`).
    """

    SCHEMA: ClassVar[int] = 33
    """Raised also when a manifest declares other intents: a fold of the same events then differs."""

    def __init__(self, refusal: Refusal = declared_refusal) -> None:
        """Starts empty; `refusal` is the check of each intent."""
        self._refusal = refusal
        self.positions: dict[str, int] = {}
        self.cluster = self.log = ""
        self.pods: dict[str, ObservedPod] = {}
        self.known: dict[str, dict[str, KnownObject]] = self._known_with_pods({})
        self.intents = IntentIndex()
        self.started_seq = 0
        self.admission = AdmissionState()
        self.late_admitted: dict[str, None] = {}
        self.evictions = EvictionRecord()

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
            case (
                PodPlaced()
                | EvictionRequested()
                | PodUnschedulable()
                | FieldsDesired()
                | ObjectDesired()
                | NodeReported()
            ):
                self._intent(Cause(record.context, record.seq), event, record.at_ns)
            case _ if record.cause and isinstance(event, OUTCOMES):
                self.evictions.end(record.cause)
                self.intents.add_outcome(record.cause, result_of(record), self.positions.get(record.cause.context, 0))
            case ClusterIdentified(cluster=cluster, log=log):
                self.cluster, self.log = cluster, log
            case WriterStarted():
                self.started_seq = record.seq
            case AdmissionMissed(uid=uid):
                self.late_admitted[uid] = None
        self.evictions.apply(record)
        self.admission.apply(event)
        self.positions[record.context] = record.seq

    def history_begins(self, context: str, seq: int) -> None:
        """Forgets outcomes of intents that have left their log: see `shared.fold.BeginsLate`."""
        self.intents.forget_early_outcomes(context, seq)

    def _intent(self, cause: Cause, event: Intent | NodeReported, at_ns: int) -> None:
        if isinstance(event, NodeReported) and not event.status_desired:
            return
        # A copy has its append's positions, the event itself only where it is the first of its append.
        intent = desired_status(event) if isinstance(event, NodeReported) else without_basis(event)
        if reason := self._refusal(cause.context, intent):
            self.intents.add_refused(cause, refused_outcome(intent, reason))
        elif isinstance(intent, OneShot):
            self.intents.add_one_shot(cause, intent, at_ns)
        else:
            self.intents.add_desired(cause, intent, at_ns)

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
        # Interned, since many pods have these names in common.
        self.pods[key] = ObservedPod(
            identity_of(uid, pod),
            node=intern(pod.spec.node_name),
            scheduler=intern(pod.spec.scheduler_name),
            quota=intern((pod.metadata.labels or {}).get(QUOTA_NAME, "")),
            workload=intern(_workload(pod)),
            flags=UNSCHEDULABLE * unschedulable | TERMINATING * (pod.metadata.deletion_timestamp is not None),
        )

    def _deleted(self, resource: str, key: str, uid: str = "") -> None:
        objects = self.known.get(resource, {})
        if key in objects and uid in ("", objects[key].uid):
            del objects[key]

    # -- snapshots

    def encode(self) -> bytes:
        """Encodes the State in its canonical form: see `shared.fold.State`."""
        return encode(
            StoredState(
                positions=self.positions,
                cluster=self.cluster,
                log=self.log,
                known={
                    resource: objects for resource, objects in self.known.items() if objects and resource != PODS.name
                },
                pods=store_pods(self.pods),
                intents=self.intents.stored(),
                started_seq=self.started_seq,
                admission=self.admission.stored(),
                late_admitted=sorted(self.late_admitted),
                evictions=self.evictions.stored(),
            )
        )

    def restore(self, data: bytes) -> None:
        """Restores what `encode` wrote, and derives the rest."""
        stored = decode(data)
        self.positions, self.pods = stored.positions, restore_pods(stored.pods)
        self.cluster, self.log = stored.cluster, stored.log
        self.known = self._known_with_pods(stored.known)
        self.intents.restore(stored.intents)
        self.started_seq = stored.started_seq
        self.admission.restore(stored.admission)
        self.late_admitted = dict.fromkeys(stored.late_admitted)
        self.evictions = stored.evictions.record()


def _workload(pod: Pod) -> str:
    """Returns kind and name of the pod's controller."""
    owner = pod.metadata.controller
    return f"{owner.kind}/{owner.name}" if owner else ""
