"""A transaction of the simulated API server: the operations on objects of one step, as events.

An `ApiTransaction` is based on a State that it never changes. It reads through the changes of the step, so that the
requests of one batch see each other; its `drafts` are the step.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from services.simulator.api import object_admission
from services.simulator.api.api_errors import already_exists, conflict, forbidden, invalid, not_found
from services.simulator.api.object_conversion import (
    deletion_event,
    merged,
    name_of,
    new_body,
    new_metadata,
    observation_event,
    typed,
)
from services.simulator.api.replica_set_admission import check_replica_set
from services.simulator.api.resource_kinds import (
    BY_NAME,
    NAMESPACES,
    NODE_METRICS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    Resource,
)
from services.simulator.kubelet.pod_lifecycle import PodTimings, second_text, with_condition
from services.simulator.state import Object, SimulatorState, uid_of
from shared.events import Cause, Draft, Event
from shared.kube.instants import SECOND
from shared.kube.meta import Metadata
from shared.kube.node import Node, NodeMetric, NodeMetricSpec, NodeMetricStatus
from shared.kube.pod import ENDED_PHASES, Pod, PodCondition

SCHEDULED = PodCondition(type="PodScheduled", status="True")


class ApiTransaction:
    """The objects with the changes of this step.

    Attributes:
        drafts: the events of the step, in order.
        created: number of objects created so far, including this step.
        changed: the objects that the step has written, in order: (resource, key).
    """

    def __init__(self, state: SimulatorState, *, seed: int, timings: PodTimings, now_ns: int) -> None:
        self.now_ns = now_ns
        self.drafts: list[Draft] = []
        self.changed: dict[tuple[str, str], Object | None] = {}
        self._state = state
        self._seed = seed
        self._timings = timings
        self.created = state.created
        self._now_text = second_text(now_ns)
        self._classes: dict[str, dict[str, Any]] | None = None

    def find(self, resource: str, key: str) -> Object | None:
        """Returns the object with the changes of this step."""
        if (resource, key) in self.changed:
            return self.changed[resource, key]
        return self._state.objects.get(resource, {}).get(key)

    def pod(self, key: str) -> Pod | None:
        """Returns the pod `namespace/name`."""
        found = self.find(PODS.name, key)
        return found if isinstance(found, Pod) else None

    def node(self, name: str) -> Node | None:
        """Returns the node of that name."""
        found = self.find(NODES.name, name)
        return found if isinstance(found, Node) else None

    def keys(self, resource: str) -> Iterator[str]:
        """Yields the keys of a resource's objects: first those from before the step."""
        before = self._state.objects.get(resource, {})
        yield from (key for key in before if self.changed.get((resource, key), True) is not None)
        for (changed, key), stored in self.changed.items():
            if changed == resource and stored is not None and key not in before:
                yield key

    def create(self, resource: Resource, body: Object) -> Object:
        """Admits and stores a new object. Returns it as stored.

        Args:
            resource: the object's.
            body: as the client wrote it; its uid, creation time and status are ignored (a node's status is kept).

        Raises:
            ApiError: as the API server would.
        """
        name, namespace = name_of(body)
        if resource.namespaced:
            namespace = namespace or "default"
        object_admission.check_name(resource, name, namespace)
        key = f"{namespace}/{name}" if namespace else name
        if namespace and self.find(NAMESPACES.name, namespace) is None:
            raise not_found("namespaces", namespace)
        if self.find(resource.name, key) is not None:
            raise already_exists(resource.name, name)
        given = (namespace, self._next_uid(resource.name, key), self._now_text)
        new: Object
        if isinstance(body, Pod):
            new = replace(
                object_admission.admit_pod(body, self._priority_classes()), metadata=new_metadata(body.metadata, *given)
            )
        elif isinstance(body, Node):
            new = replace(object_admission.admit_node(body), metadata=new_metadata(body.metadata, *given))
        elif isinstance(body, NodeMetric):
            new = replace(body, metadata=new_metadata(body.metadata, *given), status=NodeMetricStatus())
        else:
            if resource is REPLICA_SETS:
                check_replica_set(body, self._priority_classes())
            new = new_body(body, resource, *given)
        self.created += 1
        self.put(resource.name, key, new)
        return new

    def patch(self, resource: Resource, key: str, patch: Mapping[str, Any], *, status: bool, uid: str = "") -> Object:
        """Applies a JSON merge patch to the object, or to its status alone. Returns the stored object.

        Raises:
            ApiError: there is no such object, it has another uid, or the patch is not allowed.
        """
        before = self._expect(resource.name, key, uid)
        kept = msgspec.to_builtins(before)
        parts = {"status"} if status else patch.keys() - ({"status"} if resource.status else set())
        desired = merged(kept, {name: value for name, value in patch.items() if name in parts})
        metadata = desired.get("metadata")
        if not isinstance(metadata, dict):
            raise invalid(resource.kind, key, "metadata", f"must be an object, and is {metadata!r}")
        for name in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"):
            if metadata.get(name) != kept["metadata"].get(name):
                raise forbidden(resource.name, key, f"metadata.{name}: field is immutable")
        new = typed(resource, desired)
        if isinstance(before, Pod) and isinstance(new, Pod):
            object_admission.check_update(before, new)
        elif isinstance(new, Node):
            object_admission.check_node(new)
        elif resource is REPLICA_SETS and isinstance(new, dict):
            check_replica_set(new, self._priority_classes())
        self.put(resource.name, key, new)
        return new

    def delete(self, resource: Resource, key: str, *, uid: str = "", grace_s: int | None = None) -> Object:
        """Deletes the object. A bound pod that runs is removed after its grace period; a namespace with all objects in
        it.

        Raises:
            ApiError: there is no such object, or it has another uid.
        """
        stored = self._expect(resource.name, key, uid)
        if isinstance(stored, Pod):
            return self.end_pod(stored, grace_s)
        if resource is NAMESPACES:
            if key in {"default", "kube-system"}:
                raise forbidden("namespaces", key, "this namespace may not be deleted")
            for inside in (name for name, known in BY_NAME.items() if known.namespaced):
                for other in [one for one in self.keys(inside) if one.startswith(f"{key}/")]:
                    self.remove(inside, other)
        self.remove(resource.name, key)
        if resource is NODES:
            self._collect_orphans(key)
        return stored

    def end_pod(self, pod: Pod, grace_s: int | None = None, condition: PodCondition | None = None) -> Pod:
        """Deletes a pod: at once when none of its containers run, else after its grace period.

        Args:
            pod: as it is now.
            grace_s: seconds that it gets; the simulator's `stop_delay_s` when absent, and never more than that.
            condition: put into its status first.
        """
        if condition:
            conditions = with_condition(pod.status.conditions, condition, self._now_text)
            pod = replace(pod, status=replace(pod.status, conditions=conditions))
        key = pod.metadata.key
        delay_s = self._timings.stop_delay_s if grace_s is None else min(grace_s, self._timings.stop_delay_s)
        if not pod.spec.node_name or pod.status.phase in ENDED_PHASES or not delay_s:
            self.remove(PODS.name, key)
        elif pod.metadata.deletion_timestamp is None:
            until = second_text(self.now_ns + int(delay_s * SECOND))
            pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=until))
            self.put(PODS.name, key, pod)
        return pod

    def bind(self, key: str, uid: str, node: str, annotations: Mapping[str, str] | None = None) -> None:
        """Assigns a pod to a node, with the annotations of the binding.

        Raises:
            ApiError: the pod is deleted, terminating, assigned, gated or has another uid, or there is no such node.
        """
        pod = self.pod(key)
        if pod is None:
            raise not_found("pods", key)
        if pod.metadata.uid != uid:
            raise conflict("pods", key, f"the pod has the uid {pod.metadata.uid}, not {uid}")
        if pod.spec.node_name:
            raise conflict("pods", key, f"the pod is already assigned to node {pod.spec.node_name}")
        if pod.metadata.deletion_timestamp:
            raise conflict("pods", key, "the pod is being deleted and cannot be assigned to a node")
        if pod.spec.scheduling_gates:
            raise conflict("pods", key, f"the pod has the scheduling gate {pod.spec.scheduling_gates[0].name}")
        if self.find(NODES.name, node) is None:
            raise not_found("nodes", node)
        conditions = with_condition(pod.status.conditions, SCHEDULED, self._now_text)
        metadata = pod.metadata
        if annotations:
            metadata = replace(metadata, annotations={**(metadata.annotations or {}), **annotations})
        spec, status = replace(pod.spec, node_name=node), replace(pod.status, conditions=conditions)
        self.put(PODS.name, key, replace(pod, metadata=metadata, spec=spec, status=status))

    def set_condition(self, pod: Pod, condition: PodCondition) -> None:
        """Writes a condition of the pod's status."""
        conditions = with_condition(pod.status.conditions, condition, self._now_text)
        self.put(PODS.name, pod.metadata.key, replace(pod, status=replace(pod.status, conditions=conditions)))

    def report(self, node: str, spec: NodeMetricSpec, status: NodeMetricStatus) -> None:
        """Writes a node's NodeMetric. The first report creates it; later reports leave its spec to the SLO controller."""
        stored = self.find(NODE_METRICS.name, node)
        if isinstance(stored, NodeMetric):
            metadata, spec = stored.metadata, stored.spec
        else:
            metadata = Metadata(
                name=node, uid=self._next_uid(NODE_METRICS.name, node), creation_timestamp=self._now_text
            )
            self.created += 1
        self.put(NODE_METRICS.name, node, NodeMetric(metadata=metadata, spec=spec, status=status))

    def put(self, resource: str, key: str, new: Object) -> None:
        """Stores the object; without an event when it has not changed."""
        if new != self.find(resource, key):
            self._change(resource, key, new)
            self.drafts.append(
                Draft(observation_event(resource, key, new), correlation=uid_of(new) if resource == PODS.name else None)
            )

    def remove(self, resource: str, key: str) -> None:
        """Removes the object."""
        stored = self.find(resource, key)
        if stored is not None:
            self._change(resource, key, None)
            uid = uid_of(stored)
            self.drafts.append(
                Draft(deletion_event(resource, key, uid), correlation=uid if resource == PODS.name else None)
            )

    def record_outcome(self, event: Event, cause: Cause, correlation: str | None = None) -> None:
        """Records the outcome of an intent."""
        self.drafts.append(Draft(event, cause, correlation))

    def _change(self, resource: str, key: str, new: Object | None) -> None:
        self.changed[resource, key] = new
        if resource == PRIORITY_CLASSES.name:
            self._classes = None

    def _expect(self, resource: str, key: str, uid: str) -> Object:
        stored = self.find(resource, key)
        if stored is None:
            raise not_found(resource, key)
        if uid and uid_of(stored) != uid:
            raise conflict(resource, key, f"the precondition names uid {uid}, the object has {uid_of(stored)}")
        return stored

    def _priority_classes(self) -> Mapping[str, dict[str, Any]]:
        if self._classes is None:
            resource = PRIORITY_CLASSES.name
            found = {key: self.find(resource, key) for key in self.keys(resource)}
            self._classes = {key: body for key, body in found.items() if isinstance(body, dict)}
        return self._classes

    def _collect_orphans(self, node: str) -> None:
        """Removes the pods of a deleted node, as the pod garbage collector does."""
        for key in [one for one in self.keys(PODS.name) if (pod := self.pod(one)) and pod.spec.node_name == node]:
            self.remove(PODS.name, key)

    def _next_uid(self, resource: str, key: str) -> str:
        digest = hashlib.blake2b(f"{self._seed}/{self.created}/{resource}/{key}".encode(), digest_size=16).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"
