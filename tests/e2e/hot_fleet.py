"""A fleet with hot nodes on a real API server: Deployments with disruption budgets, usage by pod, and what is available
of each workload at every change.
"""

import asyncio
import http.client
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from cli.dev.fake_nodes import create_nodes, node_object
from cli.dev.kube_client import ApiRefused, Session
from cli.dev.local_control_plane import Cluster
from tests.e2e.stage import pod
from tests.support.waiting import in_thread, until

Json = dict[str, Any]

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
CORES, POD_MILLI, USED_MILLI, SYSTEM_MILLI = 10, 800, 450, 100
"""Cores of a node; milli-cores that a pod requests and uses, and that a node uses besides."""

PODS_PER_NODE = CORES * 1000 // POD_MILLI
REPLICAS, AVAILABLE = 8, 6
"""Pods of each workload, and those that its disruption budget keeps available."""

REPORT_S = 3.0
CONNECTIONS = 4


class Fleet:
    """Nodes, and workloads whose pods all run on the first of them.

    Attributes:
        nodes: all; hot: those on which the pods run at first, which are full then.
    """

    def __init__(self, cluster: Cluster, nodes: int, hot: int) -> None:
        self.cluster = cluster
        self.nodes = [f"node-{number:03}" for number in range(nodes)]
        self.hot = self.nodes[:hot]
        self.workloads = hot * PODS_PER_NODE // REPLICAS

    def create(self) -> None:
        """Creates the nodes, each with its NodeMetric."""
        capacity = {"cpu": str(CORES), "memory": "64Gi", "pods": "110"}
        create_nodes(self.cluster.api, [node_object(name, capacity=capacity) for name in self.nodes])
        spec = {"metricCollectPolicy": {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}}
        head = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "spec": spec, "status": {}}
        with self.cluster.api.session() as session:
            for name in self.nodes:
                session.call("POST", METRICS, head | {"metadata": {"name": name}})

    async def deploy(self, namespace: str) -> None:
        """Creates the workloads, and waits until they fill the hot nodes; then the other nodes admit pods, too."""
        cold = self.nodes[len(self.hot) :]
        await asyncio.to_thread(self.cordon, cold, unschedulable=True)
        await asyncio.to_thread(self.cluster.create_namespace, namespace)
        await asyncio.to_thread(self._create_workloads, namespace)
        await until(
            in_thread(self.on_nodes, namespace),
            "full nodes",
            holds=lambda on: on == dict.fromkeys(self.hot, PODS_PER_NODE),
        )
        await until(in_thread(self.budgets_allow, namespace), "disruption budgets that allow evictions")
        await asyncio.to_thread(self.cordon, cold, unschedulable=False)

    def cordon(self, nodes: Iterable[str], *, unschedulable: bool) -> None:
        """Begins or ends the cordon of nodes."""
        with self.cluster.api.session() as session:
            for name in nodes:
                session.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": unschedulable or None}})

    def _create_workloads(self, namespace: str) -> None:
        template = pod("any", f"{POD_MILLI}m", "1Gi")
        with self.cluster.api.session() as session:
            for number in range(self.workloads):
                name, labels = f"web-{number:02}", {"app": f"web-{number:02}"}
                selector = {"matchLabels": labels}
                session.call(
                    "POST", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
                    {"metadata": {"name": name}, "spec": {"minAvailable": AVAILABLE, "selector": selector}},
                )  # fmt: skip
                spec = {"metadata": {"labels": labels}, "spec": template["spec"]}
                session.call(
                    "POST", f"/apis/apps/v1/namespaces/{namespace}/deployments",
                    {"metadata": {"name": name}, "spec": {"replicas": REPLICAS, "selector": selector, "template": spec}},
                )  # fmt: skip

    def budgets_allow(self, namespace: str) -> bool:
        """Reports whether the disruption controller has counted all pods of every workload as healthy."""
        found = self.cluster.api.call("GET", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")["items"]
        return all(each.get("status", {}).get("currentHealthy") == REPLICAS for each in found)

    def pods(self, namespace: str) -> list[Json]:
        """Returns the pods of the workloads, those that terminate included."""
        found: list[Json] = self.cluster.api.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def on_nodes(self, namespace: str) -> dict[str, int]:
        """Returns node -> number of pods that are available there."""
        ready = (each["spec"]["nodeName"] for each in self.pods(namespace) if is_available(each))
        return dict(sorted(Counter(ready).items()))

    async def report(self) -> None:
        """Writes what the pods of each node use into its NodeMetric, again and again, as koordlet does."""
        while True:
            await asyncio.to_thread(self._report)
            await asyncio.sleep(REPORT_S)

    def _report(self) -> None:
        on: dict[str, list[Json]] = {name: [] for name in self.nodes}
        for each in self.cluster.api.call("GET", "/api/v1/pods")["items"]:
            if is_available(each) and each["spec"]["nodeName"] in on:
                on[each["spec"]["nodeName"]].append(each)
        shares = [self.nodes[start::CONNECTIONS] for start in range(CONNECTIONS)]
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(lambda share: self._report_nodes(share, on), shares))

    def _report_nodes(self, nodes: Sequence[str], on: dict[str, list[Json]]) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self.cluster.api.session() as session:
            for node in nodes:
                session.call("PATCH", f"{METRICS}/{node}/status", {"status": _status(now, on[node])})


class Available:
    """The available pods of each workload of a namespace, at every change that the API server shows.

    Attributes:
        least: workload -> the fewest pods that were available since all were.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.least: dict[str, int] = {}
        self.changes = 0
        self._cluster, self._path = cluster, f"/api/v1/namespaces/{namespace}/pods"
        self._pods: dict[str, str] = {}  # uid -> workload of an available pod
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="availability", daemon=True)

    def start(self) -> None:
        """Begins with the pods of now, all of which have to be available."""
        with self._cluster.api.session() as session:
            version = self._list(session)
        self.least = dict(Counter(self._pods.values()))
        self._version = version
        self._thread.start()

    def stop(self) -> None:
        """Ends with the next change."""
        self._ended.set()

    def _list(self, session: Session) -> str:
        found = session.call("GET", self._path)
        self._pods = {each["metadata"]["uid"]: _workload(each) for each in found["items"] if is_available(each)}
        return str(found["metadata"]["resourceVersion"])

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                with self._cluster.api.session(timeout_s=60) as session:
                    self._watch(session)
            except (OSError, http.client.HTTPException, ApiRefused):
                with self._cluster.api.session() as session:  # some changes are missed, as between two samples
                    self._version = self._list(session)
                self._note()

    def _watch(self, session: Session) -> None:
        for event in session.lines(f"{self._path}?watch=1&resourceVersion={self._version}&timeoutSeconds=50"):
            if self._ended.is_set():
                return
            metadata = event["object"]["metadata"]
            self._version = metadata.get("resourceVersion", self._version)
            if event["type"] == "DELETED" or not is_available(event["object"]):
                self._pods.pop(metadata.get("uid", ""), None)
            else:
                self._pods[metadata["uid"]] = _workload(event["object"])
            self.changes += 1
            self._note()

    def _note(self) -> None:
        now = Counter(self._pods.values())
        for name, least in self.least.items():
            self.least[name] = min(least, now[name])


def is_available(body: Json) -> bool:
    """Reports whether a pod is ready and stays."""
    conditions = {each["type"]: each["status"] for each in body["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not body["metadata"].get("deletionTimestamp")


def _workload(body: Json) -> str:
    return str(body["metadata"]["labels"]["app"])


def _status(now: str, pods: Collection[Json]) -> Json:
    def usage(milli: int) -> Json:
        return {"resources": {"cpu": f"{milli}m", "memory": "4Gi"}}

    listed = [
        {
            "namespace": each["metadata"]["namespace"],
            "name": each["metadata"]["name"],
            "podUsage": {"resources": {"cpu": f"{USED_MILLI}m", "memory": "128Mi"}},
        }
        for each in pods
    ]
    total = SYSTEM_MILLI + USED_MILLI * len(listed)
    return {
        "updateTime": now,
        "nodeMetric": {"nodeUsage": usage(total), "systemUsage": usage(SYSTEM_MILLI)},
        "podsMetric": listed,
    }
