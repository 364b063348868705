"""The descheduler as a process, with simulator and scheduler: a hot node becomes a case with a job."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from cli.embedded import EmbeddedNats
from cli.kinds import evictions
from cli.kinds.listed_eviction import ListedEviction
from cli.scheduling.why_eviction_case import explain_case
from cli.simulate.simulator_client import SimulatedApi, SimulatorRefused
from cli.supervisor.supervisor import Spec
from services.simulator.kubelet.usage_reports import LOAD, USES
from shared.log.database import Database
from shared.log.reader import LogReader
from tests.support.pods import written_pod
from tests.support.simulated_services import rejected_paths, simulated_services, store_config_map
from tests.support.waiting import until

SIMULATOR = {
    "KOORD_SIMULATOR_NODES": "3",
    "KOORD_SIMULATOR_REPORT_INTERVAL_S": "2",
    "KOORD_SIMULATOR_AVERAGE_S": "15",
    "KOORD_SIMULATOR_HOT_PERCENT": "0",
}
CONFIG = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 1s
profiles:
  - plugins:
      balance: {enabled: [{name: LowNodeLoad}]}
    pluginConfig:
      - name: LowNodeLoad
        args:
          lowThresholds: {cpu: 40, memory: 90}
          highThresholds: {cpu: 70, memory: 95}
          anomalyCondition: {consecutiveAbnormalities: 1, consecutiveNormalities: 1}
      - name: MigrationController
        args: {evictAllBarePods: true}
"""


class Stage(NamedTuple):
    """A running system."""

    database: str
    api: SimulatedApi

    async def configure(self, text: str) -> None:
        """Stores the ConfigMap."""
        await store_config_map(self.api, "koord-descheduler-config", {"koord-descheduler-config": text})

    async def heat(self, node: str, percent: int) -> None:
        """Sets the load of a node outside of pods."""
        place = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        await self.api.patch(place, {"metadata": {"annotations": {LOAD: str(percent)}}})


@asynccontextmanager
async def stage(database: str, nats: EmbeddedNats, folder: Path) -> AsyncIterator[Stage]:
    specs = [
        Spec("simulator", "simulator", SIMULATOR),
        Spec("scheduler", "scheduler", {}),
        Spec("descheduler", "descheduler", {"KOORD_DESCHEDULER_DEBOUNCE_S": "1"}),
    ]
    async with simulated_services(database, nats, folder, specs) as (_, api):
        yield Stage(database, api)


async def test_a_bad_configuration_is_rejected_and_a_hot_node_becomes_a_case_with_destinations_and_jobs(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with stage(database, nats, tmp_path) as on:
        misspelt = {"koord-descheduler-confg": CONFIG, "notes": "x"}
        await store_config_map(on.api, "koord-descheduler-config", misspelt)
        assert await until(lambda: rejected_paths(database, "descheduling")) == ["data"]
        await on.configure(CONFIG.replace("1s", "soon", 1))

        async def both() -> bool:
            return await rejected_paths(database, "descheduling") == ["data", "deschedulingInterval"]

        await until(both)
        [log_file] = tmp_path.rglob("descheduler.log")
        assert '"path":"deschedulingInterval"' in log_file.read_text()
        for number in range(2):
            pod = written_pod(
                f"web-{number}", namespace="default", requests={"cpu": "4", "memory": "1Gi"},
                annotations={USES: "100"}, schedulerName="koord-scheduler", nodeName="node-0000",
            )  # fmt: skip
            await on.api.create(pod)
        await on.configure(CONFIG)
        await on.heat("node-0000", 60)

        async def cases() -> list[ListedEviction]:
            return [each for each in await evictions.read(database) if each.victims]

        found = (await until(cases))[-1]
        assert found.name.startswith("lownodeload-")
        assert found.nodes == ("node-0000",)
        opened = Database(database)
        try:
            log = LogReader(opened)
            explained = await explain_case(log, found.name)
        finally:
            await opened.close()
        assert explained is not None
        assert {victim.destination for victim in explained.victims} <= {"node-0001", "node-0002"}
        assert all("node is overutilized, node cpu usage" in victim.reason for victim in explained.victims)
        place = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
        job = await until(lambda: _found(on.api, {**place, "metadata": {"name": explained.victims[0].job}}))
        assert job["spec"]["podRef"]["name"].startswith("web-")


async def _found(api: SimulatedApi, place: dict[str, object]) -> dict[str, dict[str, dict[str, str]]] | None:
    try:
        return dict(await api.get(place))
    except SimulatorRefused:
        return None
