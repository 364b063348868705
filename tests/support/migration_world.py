"""A small world for tests of migration: the log of `cluster` and `descheduling`, and the others that answer intents.

The State folds both logs as a service does; a restart folds them again. Gateway, scheduler and workload controllers are
methods that append what they would record.
"""

from typing import Any

from msgspec.structs import replace

from services.descheduler.migration.controller_args import MigrationArgs
from services.descheduler.migration.decide_migration import migration_drafts, unit_moves
from services.descheduler.migration.pod_migration_job import PodMigrationJob, read_job
from services.descheduler.state.descheduler_state import DeschedulerState
from services.simulator.api.object_conversion import merged
from shared.domain.gang import POD_GROUP_LABEL
from shared.domain.move_destinations import DestinationsResponse
from shared.domain.reservation import Reservation, read_reservation
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.base import without_basis
from shared.events.cluster import (
    DesiredStateRejected,
    EvictionRejected,
    ObjectDeleted,
    ObjectObserved,
    PodDeleted,
    PodEvicted,
    PodObserved,
)
from shared.events.intents import EvictionRequested, FieldsDesired, ObjectDesired
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import Pod, PodCondition
from shared.kube.resource_names import MIGRATION_JOBS, POD_GROUPS, RESERVATIONS
from tests.support.migration import BEGIN_NS, job_body, moved_pod, owner

OWN, CLUSTER = "descheduling", "cluster"


class World:
    """Both logs, the objects of the API, and the descheduler.

    Attributes:
        refused: uid -> why the scheduler finds no destination for a pod; each other pod gets node `n9`.
        fault: why the scheduler does not answer at all.
    """

    def __init__(self, args: MigrationArgs) -> None:
        self.args, self.now_ns = args, BEGIN_NS
        self.logs: dict[str, list[RecordedEvent]] = {OWN: [], CLUSTER: []}
        self.order: list[RecordedEvent] = []
        self.state = DeschedulerState()
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.open: dict[int, Event] = {}
        self.uids = 0
        self.labels: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.fault = ""

    # -- logs

    def append(self, context: str, event: Event, cause: int = 0) -> RecordedEvent:
        """Appends an event and folds it."""
        log = self.logs[context]
        record = RecordedEvent(context, len(log) + 1, event, self.now_ns, Cause(OWN, cause) if cause else None)
        log.append(record)
        self.order.append(record)
        self.state.apply(record)
        return record

    def restart(self) -> None:
        """The descheduler folds both logs again, in another order, or goes on from a snapshot."""
        again = DeschedulerState()
        for record in (*self.logs[CLUSTER], *self.logs[OWN]):
            again.apply(record)
        assert snapshot(again) == snapshot(self.state)
        self.state = DeschedulerState()
        self.state.restore(snapshot(again))
        assert snapshot(again) == snapshot(self.state)

    def decide(self) -> list[Event]:
        """The descheduler decides once."""
        drafts = self._drafts()
        seen = {CLUSTER: len(self.logs[CLUSTER]), OWN: len(self.logs[OWN])}
        for number, draft in enumerate(drafts):
            event = replace(draft.event, seen=seen) if number == 0 else draft.event
            record = self.append(OWN, event)
            if isinstance(event, EvictionRequested | FieldsDesired | ObjectDesired):
                self.open[record.seq] = without_basis(event)
        assert not [draft for draft in self._drafts() if draft in drafts]
        return [draft.event for draft in drafts]

    def _drafts(self) -> list[Draft]:
        """Decides, with the scheduler's answer where there is a question."""
        moves = [] if self.fault else unit_moves(self.state, self.args, self.now_ns)
        nodes = {each.pod_uid: "n9" for each in moves if each.pod_uid not in self.refused}
        found = DestinationsResponse(nodes=nodes, refused=self.refused, fault=self.fault)
        return migration_drafts(self.state, self.args, self.now_ns, found)

    def pass_time(self, seconds: float) -> None:
        """The clock goes on."""
        self.now_ns += int(seconds * SECOND)

    # -- objects

    def put(self, resource: str, name: str, body: dict[str, Any]) -> None:
        """Stores an object, and records it."""
        self.objects[resource, name] = body
        self.append(CLUSTER, ObjectObserved(resource=resource, name=name, uid=body["metadata"]["uid"], object=body))

    def remove(self, resource: str, name: str) -> None:
        """Deletes an object, and records it."""
        body = self.objects.pop((resource, name))
        self.append(CLUSTER, ObjectDeleted(resource=resource, name=name, uid=body["metadata"]["uid"]))

    def workload(self, name: str, replicas: int) -> list[Pod]:
        """Creates a StatefulSet with ready pods, one a node."""
        body = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"replicas": replicas}}
        self.put("statefulsets.apps", f"default/{name}", body)
        controller = owner("StatefulSet", name)
        pods = [moved_pod(f"{name}-{n}", controller=controller, node=f"n{n}") for n in range(replicas)]
        for pod in pods:
            self.put_pod(pod)
        return pods

    def make_gang(self, name: str, minimum: int) -> None:
        """All pods that exist, and their successors, become a gang with a PodGroup of that minimum."""
        self.labels = {POD_GROUP_LABEL: name}
        body = {"metadata": {"name": name, "uid": f"uid-group-{name}"}, "spec": {"minMember": minimum}}
        self.put(POD_GROUPS, f"default/{name}", body)
        for pod in list(self.pods.values()):
            self.put_pod(replace(pod, metadata=replace(pod.metadata, labels=self.labels)))

    def put_pod(self, pod: Pod) -> None:
        """Stores a pod, and records it."""
        self.pods[pod.metadata.key] = pod
        self.append(CLUSTER, PodObserved(pod=pod.metadata.key, pod_uid=pod.metadata.uid, object=pod))

    def remove_pod(self, key: str) -> None:
        """Deletes a pod, and records it."""
        pod = self.pods.pop(key)
        self.append(CLUSTER, PodDeleted(pod=key, pod_uid=pod.metadata.uid))

    def request(self, name: str, pod: str, **spec: Any) -> None:
        """A client creates a job."""
        body = job_body(name, pod, **spec)
        body["metadata"]["creationTimestamp"] = instant_text(self.now_ns // SECOND * SECOND)
        self.put(MIGRATION_JOBS, name, body)

    def job(self, name: str) -> PodMigrationJob:
        """Returns a job as the API has it."""
        return read_job(self.objects[MIGRATION_JOBS, name])

    def reservation(self, name: str) -> Reservation:
        """Returns a Reservation as the API has it."""
        return read_reservation(self.objects[RESERVATIONS, name])

    # -- others

    def gateway(self, *, refuse: str = "", evicts: bool = True) -> None:
        """Carries out the intents that wait.

        Args:
            refuse: why evictions and creations are refused; empty: they are carried out.
            evicts: False: evictions go on waiting, as for budget.
        """
        for seq, event in list(self.open.items()):
            if not evicts and isinstance(event, EvictionRequested):
                continue
            del self.open[seq]
            match event:
                case EvictionRequested(pod=key, pod_uid=uid):
                    self._evict(seq, key, uid, refuse)
                case ObjectDesired(resource=resource, name=name, body=None, uid=uid):
                    found = self.objects.get((resource, name))
                    if found is not None and uid in ("", found["metadata"]["uid"]):
                        self.remove(resource, name)
                case ObjectDesired(resource=resource, name=name, body=dict() as body):
                    if refuse:
                        rejected = DesiredStateRejected(resource=resource, name=name, reason=refuse)
                        self.append(CLUSTER, rejected, seq)
                        continue
                    self.uids += 1
                    metadata = body.get("metadata", {}) | {"name": name, "uid": f"made-{self.uids}"}
                    metadata["creationTimestamp"] = instant_text(self.now_ns // SECOND * SECOND)
                    self.put(resource, name, body | {"metadata": metadata})
                case FieldsDesired(resource="pods", name=key):
                    self.put_pod(self.pods[key])
                case FieldsDesired(resource=resource, name=name, patch=patch, uid=uid):
                    found = self.objects.get((resource, name))
                    if found is not None and uid in ("", found["metadata"]["uid"]):
                        self.put(resource, name, merged(found, patch))

    def _evict(self, seq: int, key: str, uid: str, refuse: str) -> None:
        pod = self.pods.get(key)
        there = pod is not None and pod.metadata.uid == uid
        if there and refuse:
            self.append(CLUSTER, EvictionRejected(pod=key, pod_uid=uid, reason=refuse), seq)
            return
        if pod is not None and there:
            metadata = replace(pod.metadata, deletion_timestamp=instant_text(self.now_ns))
            self.put_pod(replace(pod, metadata=metadata))
        self.append(CLUSTER, PodEvicted(pod=key, pod_uid=uid), seq)

    def schedule(self, name: str, node: str = "n9") -> None:
        """The scheduler places a Reservation."""
        body = self.objects[RESERVATIONS, name]
        conditions = [
            {"type": "Scheduled", "status": "True", "reason": "Scheduled"},
            {"type": "Ready", "status": "True", "reason": "Available"},
        ]
        status = {"phase": "Available", "nodeName": node, "conditions": conditions}
        self.put(RESERVATIONS, name, body | {"status": status})

    def reservation_ends(self, name: str, phase: str, reason: str, **status: Any) -> None:
        """The scheduler ends a Reservation."""
        body = self.objects[RESERVATIONS, name]
        ready = {"type": "Ready", "status": "False", "reason": reason}
        others = [each for each in (body.get("status") or {}).get("conditions", ()) if each["type"] != "Ready"]
        found = (body.get("status") or {}) | {"phase": phase, "conditions": [*others, ready]} | status
        self.put(RESERVATIONS, name, body | {"status": found})

    def kubelets_end_pods(self) -> list[str]:
        """Terminating pods are gone; returns them."""
        gone = [key for key, pod in self.pods.items() if pod.metadata.deletion_timestamp]
        for key in gone:
            self.remove_pod(key)
        return gone

    def successor(self, key: str, reservation: str, *, ready: bool = True) -> None:
        """The StatefulSet makes the pod anew, which takes the held place."""
        node = self.reservation(reservation).status.node_name
        self.uids += 1
        name = key.partition("/")[2]
        pod = moved_pod(
            name, controller=owner("StatefulSet", name.rpartition("-")[0]), node=node, ready=ready, labels=self.labels
        )
        pod = replace(pod, metadata=replace(pod.metadata, uid=f"successor-{self.uids}"))
        self.put_pod(pod)
        owners = [{"namespace": "default", "name": name, "uid": pod.metadata.uid}]
        self.reservation_ends(reservation, "Succeeded", "Succeeded", currentOwners=owners)

    def becomes_ready(self, key: str) -> None:
        """A pod becomes ready."""
        pod = self.pods[key]
        status = replace(pod.status, conditions=(PodCondition(type="Ready", status="True"),))
        self.put_pod(replace(pod, status=status))


def snapshot(state: DeschedulerState) -> bytes:
    """The canonical form of a State."""
    return state.encode()
