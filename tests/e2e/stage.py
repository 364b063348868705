"""Pods on a real API server: bodies to create, their nodes and their conditions."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cli.dev.local_control_plane import Cluster
from services.scheduler.framework.config.default_profile import DEFAULT_PROFILE
from tests.cluster.fixtures import MakeNodes
from tests.support.pods import written_pod
from tests.support.waiting import in_thread, until

BASE = Path(__file__).parents[2] / "k8s" / "base"
HOST = "kubernetes.io/hostname"
STATUS = "scheduling.koordinator.sh/resource-status"


class Stage(NamedTuple):
    """A namespace of a cluster for which a system runs.

    Attributes:
        nodes: creates nodes that are removed after the test.
    """

    cluster: Cluster
    namespace: str
    nodes: MakeNodes

    async def create(self, *bodies: Mapping[str, Any], kind: str = "pods") -> None:
        """Creates objects of the namespace; pods by default."""
        for body in bodies:
            await self.call("POST", self.path(kind), body)

    async def call(self, method: str, path: str, body: Any = None, patch: str = "merge") -> dict[str, Any]:
        """Calls the API as the administrator."""
        return await asyncio.to_thread(lambda: self.cluster.api.call(method, path, body, patch=patch))

    def path(self, kind: str = "pods", name: str = "") -> str:
        """Returns the path of a collection, or of an object in it."""
        group = "api/v1" if kind in ("pods", "persistentvolumeclaims", "events") else "apis/policy/v1"
        return f"/{group}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def pod(self, name: str) -> dict[str, Any]:
        """Returns the present pod."""
        return self.cluster.api.call("GET", self.path("pods", name))

    async def placed(self, name: str) -> str:
        """Waits until the pod has a node. Returns it."""
        return str(await until(in_thread(lambda: self.pod(name)["spec"].get("nodeName")), f"node for {name}"))

    async def unschedulable(self, name: str) -> str:
        """Waits until the pod's condition reports it as unschedulable. Returns the message."""

        def reported() -> str:
            conditions = {one["type"]: one for one in self.pod(name)["status"].get("conditions", [])}
            found = conditions.get("PodScheduled", {})
            return str(found["message"]) if found.get("reason") == "Unschedulable" else ""

        return str(await until(in_thread(reported), f"condition of {name}"))

    async def allocation(self, name: str) -> dict[str, Any]:
        """Waits until the pod is bound. Returns its allocated CPUs and zones."""
        await self.placed(name)
        found: dict[str, Any] = json.loads(self.pod(name)["metadata"]["annotations"][STATUS])
        return found

    async def remove(self, name: str) -> None:
        """Deletes a pod without grace."""
        await self.call("DELETE", self.path("pods", name), {"gracePeriodSeconds": 0})


def pod(
    name: str,
    cpu: str = "",
    memory: str = "",
    *,
    on: str = "",
    runs_on: str = "",
    scheduler: str = "koord-scheduler",
    limits: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Returns a pod of one container.

    Args:
        on: the only node that its affinity allows.
        runs_on: the node that it is created on, without a scheduler.
        requests: besides cpu and memory.
        limits: as they are.
        annotations: values that are no text are written as JSON.
        spec: fields of the spec.
    """
    requested = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value} | dict(requests or {})
    notes = {key: value if isinstance(value, str) else json.dumps(value) for key, value in (annotations or {}).items()}
    body: dict[str, Any] = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        **({"nodeSelector": {HOST: on}} if on else {}),
        **({"nodeName": runs_on} if runs_on else {}),
        **spec,
    }
    return written_pod(name, labels=labels, annotations=notes, requests=requested, limits=limits, **body)


def profiles(*texts: str) -> str:
    """Returns a configuration of several profiles: the default one, and others as YAML list items."""
    return DEFAULT_PROFILE + "".join(texts)
