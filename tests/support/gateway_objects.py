"""Objects as the API sends them, and histories of several contexts, for the gateway's tests."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from services.gateway.kube_api.decoding import Decoder
from services.gateway.kube_api.resources import RESOURCES
from services.gateway.kube_api.unused_field_removal import ObservedObject, keep_fields
from services.gateway.state import GatewayState
from services.gateway.watch.observed_changes import observed
from shared.events import Cause, Draft, Event, RecordedEvent
from shared.events.cluster import NodeObserved
from tests.support.intents import anything

TOKEN_VOLUME = {
    "name": "kube-api-access-x7k2p",
    "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]},
}


def pod(name: str = "web-0", *, uid: str = "", version: str = "5", node: str = "", **more: Any) -> dict[str, Any]:
    """Returns a pod of namespace `shop` as the API sends it, with many fields that are not kept."""
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "cni.projectcalico.org/podIP": "10.0.0.7/32",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": uid or f"uid-of-{name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-05-01T20:06:42Z",
            "labels": {"app": "web"},
            "annotations": annotations | more.pop("annotations", {}),
            "managedFields": [{"manager": "kubectl", "operation": "Update", "time": "2026-05-01T20:06:42Z"}],
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "koord-scheduler",
            "containers": [
                {
                    "name": "main",
                    "image": "web:1",
                    "env": [{"name": "A", "value": "B"}],
                    "ports": [{"containerPort": 8080}],
                    "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
                    "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                    "volumeMounts": [{"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets"}],
                }
            ],
            "volumes": [TOKEN_VOLUME],
        }
        | more.pop("spec", {}),
        "status": {"phase": "Pending", "qosClass": "Burstable"} | more.pop("status", {}),
    }


def node(name: str = "n1", *, version: str = "7", heartbeat: str = "2026-05-01T20:00:00Z") -> dict[str, Any]:
    """Returns a node as the API sends it."""
    ready = {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": heartbeat,
        "lastTransitionTime": "2026-05-01T19:00:00Z",
    }
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
            "annotations": {"node.koordinator.sh/raw-allocatable": "{}", "volumes.kubernetes.io/attach-detach": "true"},
        },
        "status": {"allocatable": {"cpu": "32"}, "conditions": [ready], "nodeInfo": {"kubeletVersion": "v1.36.3"}},
    }


def seen(resource: str, body: dict[str, Any]) -> ObservedObject:
    """Returns the kept fields of an object that arrives as JSON."""
    wire = Decoder(resource).object(msgspec.json.encode(body))
    return keep_fields(RESOURCES[resource], wire)  # type: ignore[arg-type]  # the tests' objects can be read


def kept(resource: str, body: dict[str, Any]) -> Any:
    """Returns the kept object itself."""
    return seen(resource, body).object


class Log:
    """Contexts in memory: each append gets the next seq of its context."""

    def __init__(self) -> None:
        self.contexts: dict[str, list[RecordedEvent]] = {}

    def append(self, context: str, *drafts: Draft | Event, at_ns: int | None = None) -> Cause:
        """Appends, at an instant or at that of the call, and returns the cause of the last event."""
        log = self.contexts.setdefault(context, [])
        for item in drafts:
            draft = item if isinstance(item, Draft) else Draft(item)
            instant_ns = time.time_ns() if at_ns is None else at_ns
            log.append(RecordedEvent(context, len(log) + 1, draft.event, instant_ns, draft.cause))
        return Cause(context, len(log))

    def in_order(self, contexts: Iterable[str]) -> list[RecordedEvent]:
        """Returns the events in the order in which `contexts` names their contexts, then the rest."""
        left = {name: iter(records) for name, records in self.contexts.items()}
        order = [next(left[name], None) for name in contexts if name in left]
        rest = [record for name in sorted(left) for record in left[name]]
        return [record for record in (*order, *rest) if record is not None]


def state_after(records: Sequence[RecordedEvent]) -> GatewayState:
    """Folds the records."""
    state = GatewayState(anything)
    for record in records:
        state.apply(record)
    return state


def known(*bodies: dict[str, Any], nodes: tuple[str, ...] = ("n1",)) -> GatewayState:
    """Returns the State of a log with these pods and nodes."""
    log = Log()
    for body in bodies:
        log.append("cluster", observed("pods", seen("pods", body)))
    for name in nodes:
        log.append("cluster", NodeObserved(node=name, object=kept("nodes", node(name))))
    return state_after(log.in_order([]))
