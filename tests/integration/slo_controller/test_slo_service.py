"""The SLO controller as a process, with simulator and scheduler: batch pods run on overcommitted resources."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from cli.embedded import EmbeddedNats
from cli.node.command import explained
from cli.simulate.simulator_client import SimulatedApi, SimulatorRefused
from cli.supervisor.supervisor import Spec, Supervisor
from shared.errors import KoordError
from shared.kube.quantity import nanos
from shared.log.database import Database
from shared.log.reader import LogReader
from tests.support.pods import written_pod
from tests.support.simulated_services import rejected_paths, simulated_services, store_config_map
from tests.support.waiting import until

NODE_0 = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0000"}}
SIMULATOR = {
    "KOORD_SIMULATOR_NODES": "2",
    "KOORD_SIMULATOR_REPORT_INTERVAL_S": "2",
    "KOORD_SIMULATOR_AVERAGE_S": "15",
    "KOORD_SIMULATOR_HOT_PERCENT": "0",
}
CONTROLLER = {"KOORD_SLO_CONTROLLER_DEBOUNCE_S": "1", "KOORD_SLO_CONTROLLER_POLL_INTERVAL_S": "0.5"}


class Stage(NamedTuple):
    """A running system."""

    supervisor: Supervisor
    api: SimulatedApi

    async def configure(self, document: Mapping[str, Any], **keys: Any) -> None:
        """Stores the ConfigMap."""
        data = {"colocation-config": json.dumps(document)}
        data |= {key.replace("_", "-"): json.dumps(content) for key, content in keys.items()}
        await store_config_map(self.api, "slo-controller-config", data)

    async def allocatable(self, resource: str) -> int | None:
        """Returns the allocatable amount of a resource on the first node, by the API."""
        found = (await self.api.get(NODE_0))["status"]["allocatable"].get(resource)
        return None if found is None else nanos(found) // 10**9

    async def metrics(self) -> str:
        """Returns the controller's Prometheus metrics."""
        url = f"http://{self.supervisor.units['slo-controller'].http}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()


@asynccontextmanager
async def stage(database: str, nats: EmbeddedNats, folder: Path) -> AsyncIterator[Stage]:
    specs = [
        Spec("simulator", "simulator", SIMULATOR),
        Spec("scheduler", "scheduler", {}),
        Spec("slo-controller", "slo-controller", CONTROLLER),
    ]
    async with simulated_services(database, nats, folder, specs) as (supervisor, api):
        yield Stage(supervisor, api)


def batch_pod(name: str) -> dict[str, Any]:
    amounts = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    labels = {"koordinator.sh/qosClass": "BE"}
    spec: dict[str, Any] = {"schedulerName": "koord-scheduler", "priorityClassName": "koord-batch"}
    return written_pod(name, namespace="default", labels=labels, requests=amounts, limits=amounts, **spec)


async def rejected_keys(database: str) -> list[str]:
    """Returns the ConfigMap's keys that the controller rejected, in order."""
    return [path.partition(":")[0] for path in await rejected_paths(database, "slo")]


async def test_a_batch_pod_runs_on_unused_resources(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with stage(database, nats, tmp_path) as on:
        await on.api.create(batch_pod("early"))
        assert await on.allocatable("kubernetes.io/batch-cpu") is None
        await on.configure({"enable": True, "cpuReclaimThresholdPercent": 65})
        batch_cpu = await until(lambda: on.allocatable("kubernetes.io/batch-cpu"), holds=lambda size: size is not None)
        assert 10_000 < batch_cpu < 32_000 * 65 // 100
        assert await on.allocatable("kubernetes.io/batch-memory")
        written = 'slo_controller_node_resource_reconcile_count{reason="updateNodeStatus",status="succeeded"}'
        await until(on.metrics, holds=lambda text: written in text)
        place = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "early", "namespace": "default"}}

        async def node_of_pod() -> str:
            return str((await on.api.get(place))["spec"].get("nodeName", ""))

        assert (await until(node_of_pod)).startswith("node-")
        opened = Database(database)
        try:
            found = await explained(LogReader(opened), "node-0000")
            assert found == await explained(LogReader(opened), "node-0000", datetime.now(UTC))
            with pytest.raises(KoordError, match="nothing was decided"):
                await explained(LogReader(opened), "node-0000", datetime.fromtimestamp(0, UTC))
        finally:
            await opened.close()
        cpu = found.resources[0]
        assert cpu.adds_up
        assert cpu.steps[0].amount == 32_000
        assert cpu.steps[-1].amount == batch_cpu


async def test_nodeslos_follow_the_configmap_and_an_invalid_one_changes_nothing(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        place = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "node-0000"}}

        async def node_slo() -> dict[str, Any]:
            try:
                return dict((await on.api.get(place))["spec"])
            except SimulatorRefused:
                return {}

        def threshold(spec: Mapping[str, Any]) -> int:
            return int(spec.get("resourceUsedThresholdWithBE", {}).get("cpuSuppressThresholdPercent", 0))

        def strategy(percent: int) -> dict[str, Any]:
            return {"clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": percent}}

        await on.configure({"enable": True}, resource_threshold_config=strategy(55))
        await until(node_slo, holds=lambda spec: threshold(spec) == 55)
        batch_cpu = await until(lambda: on.allocatable("kubernetes.io/batch-cpu"), holds=lambda size: size is not None)
        assert batch_cpu > 0
        # Besides two invalid keys a valid one, which shows that the whole ConfigMap was read and decided on.
        await on.configure(
            {"enable": True, "cpuReclaimThresholdPercent": -1},
            resource_threshold_config=strategy(101),
            cpu_burst_config={"clusterStrategy": {"policy": "auto"}},
        )
        spec = await until(node_slo, holds=lambda spec: spec["cpuBurstStrategy"]["policy"] == "auto")
        assert threshold(spec) == 55
        assert set(await rejected_keys(database)) == {"colocation-config", "resource-threshold-config"}
        assert (await on.allocatable("kubernetes.io/batch-cpu") or 0) > batch_cpu // 2, (
            "with -1 % nothing would be left to overcommit"
        )
        await on.configure({"enable": False}, resource_threshold_config=strategy(60))
        await until(node_slo, holds=lambda spec: threshold(spec) == 60)
        await until(lambda: on.allocatable("kubernetes.io/batch-cpu"), holds=lambda size: size is None)
