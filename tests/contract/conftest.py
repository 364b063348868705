"""One system for each side of the contract and each module: servers of its own, and the gateway or the simulator.

It ends with the module: while it lives, no other system may write to the session's cluster.
"""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from cli.dev.local_control_plane import Cluster
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.simulate.simulator_client import SimulatedApi
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.bus import Bus
from tests.contract.clients import KubeClient, SimulatorClient
from tests.contract.scenario import Client, Log, Scenario

SIDES = [pytest.param("simulator"), pytest.param("kube", marks=pytest.mark.kube)]
READY_WITHIN_S = 240

_numbers = itertools.count(1)


class System(NamedTuple):
    """A running gateway or simulator."""

    side: str
    client: Client
    log: Log
    cluster: Cluster | None = None


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SIDES)
async def system(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    postgres: EmbeddedPostgres,
    template: str,
) -> AsyncIterator[System]:
    """Starts the gateway on a kube-apiserver, or the simulator, without a scheduler: tests append the placements."""
    side: str = request.param
    folder: Path = tmp_path_factory.mktemp(f"contract-{side}")
    cluster: Cluster | None = request.getfixturevalue("kube_cluster") if side == "kube" else None
    async with AsyncExitStack() as running:
        nats = await running.enter_async_context(EmbeddedNats(folder / "nats"))
        endpoints = Endpoints(await postgres.create_database(f"contract_{side}_{next(_numbers)}", template), nats.url)
        supervisor = Supervisor([_spec(cluster)], endpoints, folder)
        await supervisor.start()
        running.push_async_callback(supervisor.stop)
        await supervisor.wait_until(lambda unit: unit.state == "leading", READY_WITHIN_S, "leading")
        log = Log(endpoints.postgres, endpoints.nats)
        await log.open()
        running.push_async_callback(log.close)
        if cluster:
            yield System(side, KubeClient(cluster.api), log, cluster)
        else:
            bus = Bus(endpoints.nats, name="contract client")
            await bus.start()
            running.push_async_callback(bus.close)
            yield System(side, SimulatorClient(SimulatedApi(bus)), log)


@pytest_asyncio.fixture(loop_scope="module")
async def scenario(system: System) -> AsyncIterator[Scenario]:
    """Creates a namespace for the test."""
    name = f"contract-{next(_numbers):06d}"
    if system.cluster:
        system.cluster.create_namespace(name)
    else:
        await system.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield Scenario(system.client, system.log, name)
    if system.cluster:
        system.cluster.delete_namespace(name)
    if isinstance(system.client, KubeClient):
        await system.client.remove_nodes()


def _spec(cluster: Cluster | None) -> Spec:
    if cluster is None:
        return Spec("simulator", "simulator", {"KOORD_SIMULATOR_REPORT_INTERVAL_S": "0"})
    settings = {"KUBECONFIG": str(cluster.kubeconfig()), "CONFIG_NAMESPACE": "", "SWEEP_INTERVAL_S": "0.5"}
    return Spec("gateway", "gateway", {f"KOORD_GATEWAY_{name}": value for name, value in settings.items()})
