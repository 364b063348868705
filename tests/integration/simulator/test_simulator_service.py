"""The simulator as a process on real servers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.embedded import EmbeddedNats
from cli.main import koord
from cli.simulate.simulator_client import SimulatedApi, SimulatorRefused
from cli.supervisor.command import refuse_wrong_cluster
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.bus import Bus
from shared.errors import KoordError
from shared.events import Draft
from shared.events.cluster import ClusterIdentified
from shared.kube.instants import instant_ns
from shared.log.database import Database
from shared.log.writer import LogWriter
from tests.support.pods import written_pod
from tests.support.waiting import PATIENCE_S, until

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"capacity": {"cpu": "8", "pods": "110"}},
}


class Running:
    """A simulator, and a client."""

    def __init__(self, supervisor: Supervisor, api: SimulatedApi) -> None:
        self.supervisor = supervisor
        self.api = api

    @property
    def unit(self) -> Any:
        return self.supervisor.units["simulator"]


@asynccontextmanager
async def simulator(database: str, nats: EmbeddedNats, folder: Path, **settings: object) -> AsyncIterator[Running]:
    own = {f"KOORD_SIMULATOR_{name.upper()}": str(value) for name, value in settings.items()}
    env = {"KOORD_SNAPSHOT_INTERVAL_S": "0.5", "KOORD_REBUILD_INTERVAL_S": "2"}
    async with AsyncExitStack() as running:
        supervisor = Supervisor([Spec("simulator", "simulator", own)], Endpoints(database, nats.url), folder, env=env)
        running.push_async_callback(supervisor.stop)
        await supervisor.start()
        await supervisor.wait_until(lambda unit: unit.state == "leading", 240, "leading")
        bus = Bus(nats.url, name="test")
        await bus.start()
        running.push_async_callback(bus.close)
        yield Running(supervisor, SimulatedApi(bus, deadline_s=PATIENCE_S))


def pod(name: str, **annotations: str) -> dict[str, Any]:
    # Bound at its creation, as a static pod is: no scheduler runs here.
    return written_pod(
        name,
        namespace="default",
        annotations=annotations,
        requests={"cpu": "500m"},
        container={"image": "pause"},
        nodeName="n",
    )


async def test_objects_are_created_changed_and_deleted_by_commands(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    file = tmp_path / "objects.yaml"
    file.write_text(
        yaml.safe_dump_all([NODE, {**pod("web"), "spec": {"containers": [{"name": "main", "image": "pause"}]}}])
    )
    async with simulator(database, nats, tmp_path, nodes=1) as running:

        async def dev(*arguments: str) -> tuple[str, str]:
            env = {"KOORD_POSTGRES": database, "KOORD_NATS": nats.url}
            result = await asyncio.to_thread(CliRunner().invoke, koord, ["dev", *arguments], env=env)
            return result.stdout, result.stderr + str(result.exception or "")

        assert (await dev("apply", str(file)))[0] == "node/n created\npod/web created in namespace default\n"
        assert (await dev("apply", "-f", str(file)))[0] == "node/n unchanged\npod/web unchanged in namespace default\n"
        assert (await dev("patch", "node", "n", '{"spec": {"unschedulable": true}}'))[0] == "node/n changed\n"
        assert (await running.api.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))["spec"] == {
            "unschedulable": True
        }
        why = await asyncio.to_thread(CliRunner().invoke, koord, ["why", "node", "n"], env={"KOORD_POSTGRES": database})
        assert 'do: `koord dev patch node n \'{"spec": {"unschedulable": false}}\'`' in why.stdout
        assert (await dev("delete", "pods", "default/web"))[0] == "pod/web deleted\n"
        assert "perhaps 'node' is meant" in (await dev("delete", "nod", "n"))[1]
        assert "not found" in (await dev("patch", "pod", "web", "{}"))[1]


async def test_a_killed_simulator_rebuilds_its_cluster(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with simulator(database, nats, tmp_path, nodes=3) as running:
        before = [(await running.api.create(pod(f"p{number}")))["metadata"]["uid"] for number in range(5)]
        running.supervisor.kill("simulator")
        await until(lambda: running.unit.restarts == 1 and running.unit.state == "leading")
        pods = await running.api.list("v1", "Pod")
        assert [one["metadata"]["uid"] for one in pods] == before
        assert len(await running.api.list("v1", "Node")) == 3
        with pytest.raises(SimulatorRefused) as refused:
            await running.api.create(pod("p0"))
        assert refused.value.code == 409
        after = (await running.api.create(pod("p9")))["metadata"]["uid"]
        assert after not in before


async def test_its_state_is_the_fold_of_its_log(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with simulator(database, nats, tmp_path, nodes=20, pods=50, pods_after_s=0, report_interval_s=1) as running:
        await until(lambda: bool(running.unit.status and running.unit.status.rebuilt))
        assert running.unit.status.rebuilt == "equal"


async def test_virtual_time_jumps_as_soon_as_nothing_is_left_to_do(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with simulator(
        database, nats, tmp_path, virtual=True, debounce_s=0.05, report_interval_s=0, keep_ended_s=0
    ) as running:
        await running.api.create(NODE)
        created = await running.api.create(pod("p", **{"simulator.koordinator.sh/runs-for": "10h"}))
        found = await until(
            lambda: running.api.get(created), holds=lambda found: found["status"]["phase"] == "Succeeded"
        )
        ended = next(one for one in found["status"]["conditions"] if one["type"] == "Ready")["lastTransitionTime"]
        assert instant_ns(ended) - instant_ns(found["status"]["startTime"]) == 10 * 3600 * 10**9
        later = await running.api.create(pod("later"))
        assert instant_ns(later["metadata"]["creationTimestamp"]) >= instant_ns(ended)


async def test_thousands_of_pods_that_are_created_at_once_are_all_accepted(
    database: str, nats: EmbeddedNats, tmp_path: Path
) -> None:
    async with simulator(database, nats, tmp_path, nodes=10, report_interval_s=0) as running:
        bodies = [pod(f"p{number}") for number in range(6_000)]
        requests = [running.api.create_all(bodies[first : first + 100]) for first in range(0, len(bodies), 100)]
        answers = [one for answer in await asyncio.gather(*requests) for one in answer]
        assert [(one["kind"], one["metadata"]["name"]) for one in answers] == [
            ("Pod", body["metadata"]["name"]) for body in bodies
        ]


async def test_the_log_of_a_real_cluster_is_refused(database: str, nats: EmbeddedNats, tmp_path: Path) -> None:
    async with simulator(database, nats, tmp_path, seed=3) as running:
        await running.api.create(NODE)
    async with simulator(database, nats, tmp_path, seed=4) as running:  # the cluster of the log, whatever the seed
        assert not running.unit.restarts
    bus, log = Bus(nats.url, name="test"), Database(database)
    await bus.start()
    writer = LogWriter(log, bus, "cluster", "gateway@test")
    await writer.acquire()
    await writer.begin("test", (), now_ns=time.time_ns(), seen={})
    await writer.append([Draft(ClusterIdentified(cluster="uid-a"))], now_ns=time.time_ns())
    await writer.close()
    await log.close()
    await bus.close()
    supervisor = Supervisor([Spec("simulator", "simulator")], Endpoints(database, nats.url), tmp_path)
    async with supervisor:
        await until(lambda: supervisor.units["simulator"].why)
        assert supervisor.units["simulator"].why.startswith("WrongCluster: this log describes cluster uid-a")
        with pytest.raises(KoordError, match="the simulated cluster 1"):
            refuse_wrong_cluster(supervisor.units.values())
