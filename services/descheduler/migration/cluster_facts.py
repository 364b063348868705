"""The facts of the cluster that migration reads: pods, replicas of workloads, jobs, Reservations.

A fold over `cluster` alone. Source: spec/descheduler.md 1.7 (indexes), 3.6 (workloads).
"""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import msgspec

from services.descheduler.migration.pod_migration_job import PodMigrationJob, UnreadableJob, read_job
from services.descheduler.state.observed_pods import ObservedPods, discard
from shared.domain.gang import GangSettings, settings_of_pod, settings_of_pod_group
from shared.domain.reservation import Reservation, UnreadableReservation, read_reservation
from shared.events import Event
from shared.events.cluster import ObjectDeleted, ObjectObserved
from shared.kube.meta import OwnerReference
from shared.kube.pod import Pod
from shared.kube.resource_names import MIGRATION_JOBS, POD_GROUPS, RESERVATIONS, WORKLOADS

REPLICA_SETS = "replicasets.apps"
_NAMED = {
    ("apps", "ReplicaSet"): REPLICA_SETS,
    ("apps", "Deployment"): "deployments.apps",
    ("apps", "StatefulSet"): "statefulsets.apps",
    ("", "ReplicationController"): "replicationcontrollers",
    ("apps.kruise.io", "CloneSet"): "clonesets.apps.kruise.io",
    ("apps.kruise.io", "StatefulSet"): "statefulsets.apps.kruise.io",
}


class Workload(msgspec.Struct, frozen=True):
    """The workload that a pod belongs to.

    Attributes:
        replicas: desired number of pods; 0 where the controller is of another kind, or is gone.
        unavailable: its pods that are not active and ready, in the order of their names; none where `replicas` is not
            known.
        unknown: why `replicas` is not known, as a phrase; empty where it is.
    """

    replicas: int = 0
    unavailable: tuple[Pod, ...] = ()
    unknown: str = ""


class Controller(msgspec.Struct, frozen=True):
    """A workload object: its desired replicas, and its own controller (of a ReplicaSet: the Deployment)."""

    uid: str
    replicas: int
    owner: OwnerReference | None = None


class ClusterFacts:
    """Objects of the cluster with the indexes that migration needs.

    Attributes:
        pods: those of the observed cluster; kept there.
        jobs: name -> job that can be read.
        unreadable: name -> (uid, fault) of a job that cannot be read.
        reservations: name -> Reservation that can be read.
        controllers: resource -> `namespace/name` -> workload object.
        pod_groups: `namespace/name` -> settings of the gang that a PodGroup declares, those that can be read.
    """

    def __init__(self, pods: ObservedPods) -> None:
        self.pods = pods
        self.jobs: dict[str, PodMigrationJob] = {}
        self.unreadable: dict[str, tuple[str, str]] = {}
        self.reservations: dict[str, Reservation] = {}
        self.controllers: dict[str, dict[str, Controller]] = {}
        self.pod_groups: dict[str, GangSettings] = {}
        self._sets: dict[str, dict[str, None]] = {}

    def apply(self, event: Event) -> None:
        """Folds an observation of anything but a pod; every other event changes nothing."""
        match event:
            case ObjectObserved(resource=resource, name=name, uid=uid, object=body) if resource == MIGRATION_JOBS:
                self.put_job(name, uid, body)
            case ObjectObserved(resource=resource, name=name, uid=uid, object=body) if resource in WORKLOADS:
                self.put_workload(resource, name, uid, body)
            case ObjectDeleted(resource=resource, name=name) if resource == MIGRATION_JOBS:
                self.jobs.pop(name, None)
                self.unreadable.pop(name, None)
            case ObjectDeleted(resource=resource, name=name) if resource in WORKLOADS:
                self._remove_workload(resource, name)
            case ObjectObserved(resource=resource, name=name, object=body) if resource == RESERVATIONS:
                self.put_reservation(name, body)
            case ObjectDeleted(resource=resource, name=name) if resource == RESERVATIONS:
                self.reservations.pop(name, None)

            case ObjectObserved(resource=resource, name=name, object=body) if resource == POD_GROUPS:
                self.put_pod_group(name, body)
            case ObjectDeleted(resource=resource, name=name) if resource == POD_GROUPS:
                self.pod_groups.pop(name, None)

    # -- changes

    def put_job(self, name: str, uid: str, body: Mapping[str, Any]) -> None:
        """Stores a job as it is now."""
        self.jobs.pop(name, None)
        self.unreadable.pop(name, None)
        try:
            self.jobs[name] = read_job(body)
        except UnreadableJob as error:
            self.unreadable[name] = uid, str(error)

    def put_reservation(self, name: str, body: Mapping[str, Any]) -> None:
        """Stores a Reservation as it is now; one that cannot be read counts as absent."""
        self.reservations.pop(name, None)
        try:
            self.reservations[name] = read_reservation(body)
        except UnreadableReservation:
            return

    def put_pod_group(self, name: str, body: Mapping[str, Any]) -> None:
        """Stores the settings of a PodGroup as it is now."""
        self.pod_groups.pop(name, None)
        if (settings := settings_of_pod_group(name, body)) is not None:
            self.pod_groups[name] = settings

    def put_workload(self, resource: str, key: str, uid: str, body: Mapping[str, Any]) -> None:
        """Stores a workload object as it is now."""
        self._remove_workload(resource, key)
        owners = (body.get("metadata") or {}).get("ownerReferences") or ()
        owner = next((_reference(each) for each in owners if each.get("controller")), None)
        replicas = (body.get("spec") or {}).get("replicas")
        found = Controller(uid, 1 if replicas is None else int(replicas), owner)
        self.controllers.setdefault(resource, {})[key] = found
        if resource == REPLICA_SETS and owner is not None:
            self._sets.setdefault(owner.uid, {})[uid] = None

    def _remove_workload(self, resource: str, key: str) -> None:
        found = self.controllers.get(resource, {}).pop(key, None)
        if found is not None and resource == REPLICA_SETS and found.owner is not None:
            discard(self._sets, found.owner.uid, found.uid)

    def with_jobs(self, jobs: dict[str, PodMigrationJob]) -> "ClusterFacts":
        """Returns the same facts with other jobs."""
        found = copy(self)
        found.jobs = jobs
        return found

    # -- questions

    def pod(self, key: str, uid: str = "") -> Pod | None:
        """Returns the pod of a name; None when it is gone, or has another uid than the given one."""
        found = self.pods.by_key.get(key)
        return found if found is not None and uid in ("", found.metadata.uid) else None

    def workload(self, pod: Pod) -> Workload:
        """Returns the workload of a pod with a controller: of a Deployment's ReplicaSet, the Deployment."""
        owner = pod.metadata.controller
        namespace = pod.metadata.namespace
        found = None if owner is None else self._controller(namespace, owner)
        if found is None:
            return Workload(unknown="" if owner is None else _why_unknown(owner))
        above = None if found.owner is None else self._controller(namespace, found.owner)
        if above is None:
            return Workload(found.replicas, self.pods.unavailable_of((found.uid,), namespace))
        return Workload(above.replicas, self.pods.unavailable_of(self._sets.get(above.uid, ()), namespace))

    def _controller(self, namespace: str, owner: OwnerReference) -> Controller | None:
        group = owner.api_version.rpartition("/")[0]
        resource = _NAMED.get((group, owner.kind))
        found = self.controllers.get(resource, {}).get(f"{namespace}/{owner.name}") if resource else None
        return found if found is not None and found.uid == owner.uid else None

    def pods_of_job(self, job: PodMigrationJob) -> Iterator[Pod]:
        """Yields the pods that a job is about: that with its uid, and that with its name."""
        named = job.spec.pod_ref
        by_uid = self.pods.by_uid.get(named.uid)
        by_name = self.pods.by_key.get(named.key)
        if by_uid is not None:
            yield by_uid
        if by_name is not None and by_name is not by_uid:
            yield by_name

    def gang_settings(self, gang: str) -> GangSettings | None:
        """Returns the settings of a gang: of its PodGroup, else those with the largest minimum that a member declares."""
        if (found := self.pod_groups.get(gang)) is not None:
            return found
        declared = [
            settings_of_pod(gang, pod.metadata.labels, pod.metadata.annotations) for pod in self.pods.of_gang(gang)
        ]
        return max((each for each in declared if each is not None), key=lambda each: each.minimum, default=None)

    # -- snapshots

    def stored(self) -> "StoredFacts":
        """Returns the stored form; the indexes are derived."""
        return StoredFacts(self.jobs, self.unreadable, self.reservations, self.controllers, self.pod_groups)

    def restore(self, stored: "StoredFacts") -> None:
        """Takes over a stored form; the pods are stored elsewhere."""
        self.jobs, self.unreadable, self.reservations = stored.jobs, stored.unreadable, stored.reservations
        self.controllers, self.pod_groups = stored.controllers, stored.pod_groups
        for found in self.controllers.get(REPLICA_SETS, {}).values():
            if found.owner is not None:
                self._sets.setdefault(found.owner.uid, {})[found.uid] = None


class StoredFacts(msgspec.Struct):
    """The layout of a snapshot; see `ClusterFacts`."""

    jobs: dict[str, PodMigrationJob]
    unreadable: dict[str, tuple[str, str]]
    reservations: dict[str, Reservation]
    controllers: dict[str, dict[str, Controller]]
    pod_groups: dict[str, GangSettings]


def _why_unknown(owner: OwnerReference) -> str:
    if (owner.api_version.rpartition("/")[0], owner.kind) in _NAMED:
        return f"its {owner.kind} {owner.name} is not in the cluster"
    return f"the replicas of its {owner.kind} {owner.name} are not known: workloads of that kind are not read"


def _reference(body: Mapping[str, Any]) -> OwnerReference:
    return OwnerReference(
        api_version=str(body.get("apiVersion", "")),
        kind=str(body.get("kind", "")),
        name=str(body.get("name", "")),
        uid=str(body.get("uid", "")),
        controller=True,
    )
