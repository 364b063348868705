"""A Kubernetes API server in memory: objects with versions, lists by pages, watches, and the writes that the gateway uses.

Objects are the JSON that clients would see. What a kubelet does (pods run, terminating pods end) is done here, too.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from cli.dev.fault_simulation.memory_watch import Change, Watch
from cli.dev.fault_simulation.virtual_loop import Process
from services.simulator.api import object_conversion
from shared.kube import resource_names
from shared.kube.instants import SECOND, instant_text
from shared.kube.pod import ENDED_PHASES
from shared.kube.strategic_merge import merged

Body = dict[str, Any]

LEASES = "leases.coordination.k8s.io"
STORAGE_CLASSES = "storageclasses.storage.k8s.io"
OF_STORAGE = (resource_names.CLAIMS, resource_names.VOLUMES, STORAGE_CLASSES)
"""Resources that are served in worlds with volumes alone."""

INSTALLED = frozenset(
    {
        "nodes",
        "namespaces",
        "configmaps",
        "pods",
        resource_names.NODE_METRICS,
        resource_names.NODE_SLOS,
        resource_names.QUOTAS,
        resource_names.NODE_TOPOLOGIES,
        resource_names.BUDGETS,
        resource_names.POD_GROUPS,
        resource_names.RESERVATIONS,
        resource_names.DEVICES,
        resource_names.KUBERNETES_EVENTS,
        LEASES,
    }
)
"""Resources that are served; a list of any other is answered by 404."""

KEPT_VERSIONS = 400
"""Changes that a watch can resume from."""

STOPS_AFTER_S = 0.4
STARTS_AFTER_S = 0.2

_ENCODE = msgspec.json.Encoder().encode


class Refused(Exception):
    """A request that the server refuses."""

    def __init__(self, code: int, reason: str, message: str = "", cause: str = "") -> None:
        super().__init__(message or reason)
        self.code = code
        self.reason = reason
        self.cause = cause

    def body(self) -> bytes:
        """Returns the Status."""
        status: Body = {"kind": "Status", "code": self.code, "reason": self.reason, "message": str(self)}
        if self.cause:
            status["details"] = {"causes": [{"reason": self.cause}]}
        return _ENCODE(status)


class ApiServer:
    """The server and the kubelets.

    Attributes:
        objects: resource -> key -> object.
        changed: called after each change of an object: resource, key, before, after.
        evicted: called with key and uid of each pod whose eviction is accepted.
        watch_lag_s: time until a change reaches the watches.
    """

    def __init__(self, seed: int, now_ns: Callable[[], int]) -> None:
        self.objects: dict[str, dict[str, Body]] = {resource: {} for resource in sorted(INSTALLED)}
        self.changed: Callable[[str, str, Body | None, Body | None], None] = lambda *_: None
        self.evicted: Callable[[str, str], None] = lambda *_: None
        self.watch_lag_s = 0.0
        self.version = 1
        self._now_ns = now_ns
        self._random = random.Random(seed)  # noqa: S311
        self._history: dict[str, deque[Change]] = {resource: deque() for resource in self.objects}
        self._oldest = dict.fromkeys(self.objects, 0)
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._watches: dict[str, list[Watch]] = {resource: [] for resource in self.objects}
        self._created = 0
        self._process = Process("kube")  # what happens by itself happens here, whichever client was first
        self._arrives_s = 0.0

    # -- objects

    def install(self, resource: str) -> None:
        """Serves one more resource from now on, if it is not served yet."""
        if resource not in self.objects:
            self.objects[resource], self._history[resource] = {}, deque()
            self._oldest[resource], self._watches[resource] = 0, []

    def create(self, resource: str, body: Body) -> Body:
        """Stores a new object."""
        self._created += 1
        uid = f"{self._created:08x}-0000-4000-8000-{self._created:012x}"
        metadata = {"uid": uid, "creationTimestamp": self._now_text(), **body["metadata"]}
        return self.put(resource, key_of(metadata), {**body, "metadata": metadata})

    def put(self, resource: str, key: str, body: Body) -> Body:
        """Stores an object under a new version."""
        before = self.objects[resource].get(key)
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.objects[resource][key] = body
        self._record(resource, key, b"MODIFIED" if before else b"ADDED", body)
        self.changed(resource, key, before, body)
        if resource == "pods":
            self._kubelet(key, body)
        return body

    def remove(self, resource: str, key: str) -> None:
        """Removes an object."""
        before = self.objects[resource].pop(key, None)
        if before is None:
            return
        self.version += 1
        last = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self._record(resource, key, b"DELETED", last)
        del self._encoded[resource, key]
        self.changed(resource, key, before, None)

    def find(self, resource: str, key: str) -> Body:
        """Returns an object.

        Raises:
            Refused: there is none.
        """
        found = self.objects.get(resource, {}).get(key)
        if found is None:
            raise Refused(404, "NotFound", f"{resource} {key} not found")
        return found

    def encoded(self, resource: str, key: str) -> bytes:
        """Returns an object as JSON."""
        return self._encoded[resource, key]

    def _record(self, resource: str, key: str, kind: bytes, body: Body) -> None:
        data = self._encoded[resource, key] = _ENCODE(body)
        line = b'{"type":"' + kind + b'","object":' + data + b"}"
        history = self._history[resource]
        history.append(Change(self.version, line))
        if len(history) > KEPT_VERSIONS:
            self._oldest[resource] = history.popleft().version
        loop = asyncio.get_running_loop()
        self._arrives_s = max(self._arrives_s, loop.time() + 0.0003 + self.watch_lag_s)  # in their order
        for watch in self._watches[resource]:
            loop.call_at(self._arrives_s, watch.put, line, context=self._process.context)

    def _now_text(self) -> str:
        return instant_text(self._now_ns() // SECOND * SECOND)

    # -- lists and watches

    def snapshot(self, resource: str) -> list[bytes]:
        """Returns all objects of a resource as JSON, by key.

        Raises:
            Refused: the resource is not installed.
        """
        if resource not in self.objects:
            raise Refused(404, "NotFound", f"{resource} is not installed")
        return [self._encoded[resource, key] for key in sorted(self.objects[resource])]

    def watch(self, resource: str, version: int) -> Watch:
        """Opens a watch after a version.

        Raises:
            Refused: the version is too old, or the resource is not installed.
        """
        if resource not in self.objects:
            raise Refused(404, "NotFound", f"{resource} is not installed")
        if version < self._oldest[resource]:
            raise Refused(410, "Expired", f"too old resource version: {version}")
        watch = Watch()
        watch.lines.extend(change.line for change in self._history[resource] if change.version > version)
        self._watches[resource].append(watch)
        return watch

    def close(self, resource: str, watch: Watch) -> None:
        """Forgets a watch."""
        if watch in self._watches[resource]:
            self._watches[resource].remove(watch)

    def cut_watches(self) -> None:
        """Ends all watches."""
        for watches in self._watches.values():
            for watch in watches:
                watch.end()

    def compact(self) -> None:
        """Drops the history: a watch that resumes gets 410, and must list."""
        for resource, history in self._history.items():
            history.clear()
            self._oldest[resource] = self.version

    # -- writes

    def bind(self, key: str, uid: str, node: str, annotations: Body) -> None:
        """Executes a Binding.

        Raises:
            Refused: as the server would.
        """
        pod = self._with_uid("pods", key, uid)
        metadata, spec = pod["metadata"], pod["spec"]
        if spec.get("nodeName"):
            raise Refused(409, "Conflict", f"pod {key} is already assigned to node {spec['nodeName']}")
        if metadata.get("deletionTimestamp"):
            raise Refused(409, "Conflict", f"pod {key} is being deleted, cannot be assigned to a host")
        if annotations:
            metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
        conditions = [each for each in pod["status"].get("conditions", []) if each["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._now_text()}
        status = {**pod["status"], "conditions": [*conditions, scheduled]}
        self.put("pods", key, {**pod, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": status})

    def evict(self, key: str, uid: str) -> None:
        """Executes an Eviction.

        Raises:
            Refused: as the server would.
        """
        pod = self._with_uid("pods", key, uid)
        if pod["metadata"].get("deletionTimestamp"):
            return
        for name, budget in sorted(self.objects[resource_names.BUDGETS].items()):
            if _selects(budget, pod):
                allowed = budget["status"]["disruptionsAllowed"]
                if allowed <= 0:
                    raise Refused(429, "TooManyRequests", "budget", cause="DisruptionBudget")
                status = {**budget["status"], "disruptionsAllowed": allowed - 1}
                self.put(resource_names.BUDGETS, name, {**budget, "status": status})
        self.evicted(key, uid)
        self.delete("pods", key)

    def delete(self, resource: str, key: str, uid: str = "") -> None:
        """Deletes an object; a bound pod after its grace period.

        Raises:
            Refused: as the server would.
        """
        body = self._with_uid(resource, key, uid)
        bound = resource == "pods" and body["spec"].get("nodeName")
        if not bound or body["status"].get("phase") in ENDED_PHASES:
            self.remove(resource, key)
        elif not body["metadata"].get("deletionTimestamp"):
            self.put(resource, key, {**body, "metadata": {**body["metadata"], "deletionTimestamp": self._now_text()}})

    def patch(self, resource: str, key: str, patch: Body, *, strategic: bool = False, status: bool = False) -> Body:
        """Executes a merge patch, conditional on the resourceVersion and uid that it names.

        Raises:
            Refused: as the server would.
        """
        before = self._conditional(resource, key, patch["metadata"])
        parts = {name: value for name, value in patch.items() if name != "metadata"}
        if status:
            parts = {"status": parts.get("status", {})}
        else:
            named = {name: value for name, value in patch["metadata"].items() if name in ("labels", "annotations")}
            parts["metadata"] = named
        after = merged(before, parts) if strategic else object_conversion.merged(before, parts)
        return before if after == before else self.put(resource, key, after)

    def apply(self, resource: str, key: str, body: Body) -> Body:
        """Executes a server-side apply: creates the object, or replaces all that the body names.

        Raises:
            Refused: as the server would.
        """
        metadata = dict(body["metadata"])
        if key not in self.objects.get(resource, {}):
            if resource not in self.objects:
                raise Refused(404, "NotFound", f"{resource} is not installed")
            if metadata.pop("resourceVersion", ""):
                raise Refused(409, "Conflict", f"{resource} {key} is gone")
            return self.create(resource, {**body, "metadata": metadata})
        before = self._conditional(resource, key, metadata)
        kept = {name: value for name, value in metadata.items() if name in ("labels", "annotations")}
        after = {**before, **body, "metadata": {**before["metadata"], **kept}}
        return before if after == before else self.put(resource, key, after)

    def insert(self, resource: str, body: Body) -> Body:
        """Executes the creation of an object.

        Raises:
            Refused: there is one of its name.
        """
        key = key_of(body["metadata"])
        if key in self.objects[resource]:
            raise Refused(409, "AlreadyExists", f"{resource} {key} already exists")
        return self.create(resource, body)

    def replace(self, resource: str, key: str, body: Body) -> Body:
        """Executes the replacement of a whole object, conditional on the resourceVersion that it names.

        Raises:
            Refused: as the server would.
        """
        before = self._conditional(resource, key, body["metadata"])["metadata"]
        kept = {name: before[name] for name in ("uid", "creationTimestamp")}
        return self.put(resource, key, {**body, "metadata": {**body["metadata"], **kept}})

    def _with_uid(self, resource: str, key: str, uid: str) -> Body:
        found = self.find(resource, key)
        if uid and found["metadata"]["uid"] != uid:
            raise Refused(409, "Conflict", f"the precondition names uid {uid}")
        return found

    def _conditional(self, resource: str, key: str, metadata: Body) -> Body:
        before = self._with_uid(resource, key, metadata.get("uid", ""))
        version = metadata.get("resourceVersion", "")
        if version and version != before["metadata"]["resourceVersion"]:
            raise Refused(409, "Conflict", f"{resource} {key} has been modified")
        return before

    # -- kubelets

    def _kubelet(self, key: str, pod: Body) -> None:
        """Starts a bound pod, and ends a terminating one, after a while."""
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if not node:
            return
        then: Callable[[str, str], None] | None = None
        if pod["metadata"].get("deletionTimestamp"):
            then, after_s = self._stopped, STOPS_AFTER_S
        elif pod["status"].get("phase", "Pending") == "Pending":
            then, after_s = self._started, STARTS_AFTER_S
        if then is not None:
            delay_s = after_s * (0.5 + self._random.random())
            asyncio.get_running_loop().call_later(delay_s, then, key, uid, context=self._process.context)

    def later(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Calls the callback after a delay, whether or not the client that caused it still runs."""
        asyncio.get_running_loop().call_later(delay_s, callback, context=self._process.context)

    def _stopped(self, key: str, uid: str) -> None:
        pod = self.objects["pods"].get(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self.remove("pods", key)

    def _started(self, key: str, uid: str) -> None:
        pod = self.objects["pods"].get(key)
        if pod is not None and pod["metadata"]["uid"] == uid and not pod["metadata"].get("deletionTimestamp"):
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": self._now_text()}
            conditions = [*pod["status"].get("conditions", []), ready]
            self.put("pods", key, {**pod, "status": {**pod["status"], "phase": "Running", "conditions": conditions}})


def key_of(metadata: Body) -> str:
    """Returns `namespace/name`, or the name of a cluster-scoped object."""
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _selects(budget: Body, pod: Body) -> bool:
    labels = pod["metadata"].get("labels", {})
    selector = budget["spec"]["selector"]["matchLabels"]
    same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and all(labels.get(name) == value for name, value in selector.items())
