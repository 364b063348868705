"""Teams of a namespace: their quotas, their pods, and the statuses in the quotas' objects."""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Any, NamedTuple

from cli.dev.kube_client import ApiRefused, Session
from cli.dev.local_control_plane import Cluster
from shared.domain.amounts import nonzero
from shared.kube.elastic_quota import PREFIX, QUOTA_NAME
from shared.kube.quantity import amounts
from tests.e2e.stage import pod

Json = dict[str, Any]


class QuotaStatus(NamedTuple):
    """Status of a quota's object, in milli-cores."""

    runtime: int
    used: int


def quota(name: str, parent: str, least: int, most: int, *, is_parent: bool) -> Json:
    """In milli-cores."""
    labels = {PREFIX + "is-parent": "true" if is_parent else "false"}
    if parent:
        labels[PREFIX + "parent"] = parent
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": labels},
        "spec": {"min": {"cpu": f"{least}m"}, "max": {"cpu": f"{most}m"}},
    }


class Teams:
    """Quotas and pods of one namespace of a cluster.

    Attributes:
        requests: name of a quota -> milli-cores that its pods request, running or waiting.
        made: name of a quota -> number of pods created so far.
    """

    def __init__(self, cluster: Cluster, namespace: str, pod_milli: int) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.pod_milli = pod_milli
        self.requests: dict[str, int] = {}
        self.made: Counter[str] = Counter()

    def quotas(self, name: str = "") -> str:
        """Returns the path of the collection, or of a quota in it."""
        path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{self.namespace}/elasticquotas"
        return f"{path}/{name}" if name else path

    def pods(self, name: str = "") -> str:
        """Returns the path of the collection, or of a pod in it."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return f"{path}/{name}" if name else path

    async def call(self, method: str, path: str, body: Any = None) -> Json:
        """Calls the API as the administrator."""
        return await asyncio.to_thread(self.cluster.api.call, method, path, body)

    async def items(self, path: str) -> list[Json]:
        """Returns the objects of a collection."""
        return list((await self.call("GET", path))["items"])

    def tend(self) -> None:
        """Does the work of kubelets and controllers: removes terminating pods and those of lost nodes, and creates or
        deletes pods until each quota has the requested number.

        The API server ends a pod without grace in two steps; when the caller is killed between them, the second is left
        to this method.
        """
        with self.cluster.api.session() as api:
            nodes = {body["metadata"]["name"] for body in api.call("GET", "/api/v1/nodes")["items"]}
            there: dict[str, list[Json]] = defaultdict(list)
            for body in api.call("GET", self.pods())["items"]:
                at = body["spec"].get("nodeName", "")
                if "deletionTimestamp" in body["metadata"] or (at and at not in nodes):
                    self._remove(api, body)
                else:
                    there[(body["metadata"].get("labels") or {}).get(QUOTA_NAME, "")].append(body)
            for name, milli in self.requests.items():
                expected = milli // self.pod_milli
                waiting_last = sorted(there[name], key=lambda body: not body["spec"].get("nodeName"))
                for body in waiting_last[expected:]:
                    self._remove(api, body)
                for _ in range(expected - len(waiting_last)):
                    self._make(api, name)

    def _make(self, api: Session, of: str) -> None:
        self.made[of] += 1
        api.call("POST", self.pods(), pod(f"{of}-{self.made[of]}", f"{self.pod_milli}m", labels={QUOTA_NAME: of}))

    def _remove(self, api: Session, body: Json) -> None:
        with suppress(ApiRefused):  # evicted meanwhile
            api.call("DELETE", self.pods(body["metadata"]["name"]), {"gracePeriodSeconds": 0})

    async def statuses(self) -> dict[str, QuotaStatus]:
        """Returns the status of each object."""
        return {body["metadata"]["name"]: _status_of(body) for body in await self.items(self.quotas())}

    async def settled(
        self, expected: dict[str, QuotaStatus], within_s: float = 600, among: Collection[str] | None = None
    ) -> dict[str, QuotaStatus]:
        """Waits until the statuses are as expected, or for the longest time. Returns them.

        Args:
            among: the quotas to compare; by default all.
        """
        deadline = time.monotonic() + within_s
        while True:
            await asyncio.to_thread(self.tend)
            statuses = {
                name: found for name, found in (await self.statuses()).items() if among is None or name in among
            }
            if statuses == expected or time.monotonic() > deadline:
                return statuses
            await asyncio.sleep(0.5)

    def running(self) -> set[str]:
        """Returns the uids of the pods that have a node."""
        bodies = self.cluster.api.call("GET", self.pods())["items"]
        return {body["metadata"]["uid"] for body in bodies if body["spec"].get("nodeName")}


def _status_of(body: Json) -> QuotaStatus:
    annotations = body["metadata"].get("annotations") or {}
    runtime = nonzero(amounts(json.loads(annotations.get(PREFIX + "runtime", "{}"))))
    used = nonzero(amounts((body.get("status") or {}).get("used") or {}))
    return QuotaStatus(runtime.pop("cpu", 0), used.pop("cpu", 0))
