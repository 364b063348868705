"""All services around a real node: gateway with webhooks, scheduler, controller, both ingests, and the node's agent."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cli.dev.kube_client import ApiRefused
from cli.dev.node.kubelet_node import RealNode
from cli.processes.free_ports import free_port
from tests.node.pod_bodies import wait_until_it_listens
from tests.support.kube_system import System, running
from tests.support.waiting import until

CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations/koordstream-webhooks"
COLOCATION = {
    "enable": True,
    "cpuReclaimThresholdPercent": 200,  # some memory is left whatever else runs on this machine
    "memoryReclaimThresholdPercent": 95,
    "metricReportIntervalSeconds": 2,
    "metricAggregateDurationSeconds": 10,
}


class Site(NamedTuple):
    """A real node with all services around it.

    Attributes:
        folder: logs of services, and the agent's state.
    """

    node: RealNode
    system: System
    folder: Path

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Calls the API as the administrator."""
        return await asyncio.to_thread(self.node.cluster.api.call, method, path, body)

    async def get(self, path: str) -> dict[str, Any] | None:
        """Returns an object; None when it is not there."""
        try:
            return await self.call("GET", path)
        except ApiRefused as refused:
            if refused.status != 404:
                raise
            return None

    async def configure(self, **documents: Any) -> None:
        """Sets keys of slo-controller-config; `_` in a name stands for `-`."""
        data = {name.replace("_", "-"): json.dumps(document) for name, document in documents.items()}
        await self.call("PATCH", f"{CONFIG_MAPS}/slo-controller-config", {"data": data})

    async def created(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a pod; returns the stored object."""
        return await self.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    async def running(self, namespace: str, name: str, port: int = 0) -> dict[str, Any]:
        """Waits until the kubelet reports the pod as running, and until it listens on a port if one is given."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"

        async def look() -> dict[str, Any] | None:
            pod = await self.call("GET", path)
            assert pod["status"]["phase"] != "Failed", pod["status"]
            ready = {one["type"]: one["status"] for one in pod["status"].get("conditions", [])}.get("Ready")
            return pod if ready == "True" else None

        found: dict[str, Any] = await until(look, f"running {name}")
        if port:
            await asyncio.to_thread(wait_until_it_listens, port)
        return found


@asynccontextmanager
async def site(
    node: RealNode,
    folder: Path,
    agent: Mapping[str, str] | None = None,
    more: Mapping[str, Mapping[str, str]] | None = None,
    **documents: Any,
) -> AsyncIterator[Site]:
    """Starts all services, and waits until webhooks are served and the node has batch resources.

    Args:
        agent: settings of the agent, without KOORD_NODE_AGENT_.
        more: variables of services; those that would not run otherwise are run.
        documents: keys of slo-controller-config.
    """
    port = free_port()
    settings = {
        "NODE": node.name,
        "CGROUP_PARENT": node.tree.name,
        "CONTAINER_LOGS": str(node.container_logs),
        "KUBELET_ROOT": str(node.folder / "kubelet"),
        "KUBELET_CONFIG": str(node.folder / "kubelet.json"),
        "STATE_DIR": str(folder / "agent"),
        "REPORT_INTERVAL_S": "2",
        "FIRST_REPORT_S": "2",
        **(agent or {}),
    }
    env = {
        "gateway": {
            "KOORD_GATEWAY_WEBHOOK_LISTEN": f"127.0.0.1:{port}",
            "KOORD_GATEWAY_WEBHOOK_URL": f"https://127.0.0.1:{port}",
            "KOORD_GATEWAY_WEBHOOK_GATES": "NodeMutatingWebhook=true",
            "KOORD_GATEWAY_WEBHOOK_POLL_INTERVAL_S": "0.5",
            "KOORD_GATEWAY_WEBHOOK_FAILURE_POLICY": "Fail",
        },
        "metrics-ingest": {"KOORD_METRICS_INGEST_MIN_INTERVAL_S": "1"},
        "slo-controller": {"KOORD_SLO_CONTROLLER_POLL_INTERVAL_S": "1"},
        "node-agent": {f"KOORD_NODE_AGENT_{name}": value for name, value in settings.items()},
    }
    for name, variables in (more or {}).items():
        env[name] = env.get(name, {}) | dict(variables)
    services = dict.fromkeys(("slo-controller", "metrics-ingest", "action-ingest", *(more or ()), "node-agent"))
    cluster = node.cluster
    async with running(cluster, folder, env, more=tuple(services), nodes=[node.name]) as system:
        there = Site(node, system, folder)
        body = {"metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"}, "data": {}}
        with suppress(ApiRefused):
            await there.call("POST", CONFIG_MAPS, body)
        await there.configure(**({"colocation_config": COLOCATION} | documents))
        for kind in ("mutating", "validating"):
            await until(partial(there.get, WEBHOOKS.format(kind)), f"{kind} webhooks")
        yield there
