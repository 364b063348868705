"""The whole system against a real API server: embedded servers, the gateway and the scheduler as processes of their
own.

The gateway has the service account of k8s/rbac, and no other right.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cli.dev.local_control_plane import Cluster
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from cli.supervisor.system_servers import Servers
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.runtime.task_cancellation import cancel_and_wait
from tests.support.prepared_folders import copy_installation, install_base

K8S = Path(__file__).parents[2] / "k8s"
EXAMPLES = K8S / "examples"
ACCOUNT = ("koordinator-system", "koordstream-gateway")

WITHOUT_EVICTION_BUDGETS = {
    f"KOORD_GATEWAY_EVICTION{name}": str(10**6)
    for name in ("S_PER_NODE", "S_PER_WORKLOAD", "S_PER_NAMESPACE", "S_PER_CLUSTER", "_BREAKER")
}
"""Environment of a gateway that pauses no eviction."""


class System(NamedTuple):
    """A running system.

    Attributes:
        log: reads of its log.
        servers: the two that it runs on.
    """

    supervisor: Supervisor
    endpoints: Endpoints
    log: LogReader
    servers: Servers


@asynccontextmanager
async def beside(*parts: Any) -> AsyncIterator[None]:
    """Runs coroutines during the block; an error in one of them fails the test."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        await cancel_and_wait(*tasks)


async def kill_and_restart(system: System, victim: str) -> None:
    """Kills a process with SIGKILL; the supervisor restarts a service, and this function restarts NATS, as `koord up`
    does.
    """
    if victim != "nats":
        system.supervisor.kill(victim)
        return
    nats = system.servers.own["nats"]
    await asyncio.to_thread(nats.process.kill)  # type: ignore[union-attr]
    await asyncio.sleep(2)
    assert await system.servers.mend() == ["nats"]


@asynccontextmanager
async def running(
    cluster: Cluster,
    directory: Path,
    env: Mapping[str, Mapping[str, str]] | None = None,
    account: tuple[str, str] = ACCOUNT,
    more: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> AsyncIterator[System]:
    """Starts everything and waits until gateway and scheduler lead.

    Args:
        env: service -> variables for it alone.
        account: namespace and name of the gateway's service account.
        more: services to run besides these two.
        nodes: nodes whose agents get a login.
    """
    env = env or {}
    await asyncio.to_thread(install_base, cluster)
    kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, *account)
    gateway = {"KOORD_GATEWAY_KUBECONFIG": str(kubeconfig), **env.get("gateway", {})}
    specs = [Spec("gateway", "gateway", gateway), Spec("scheduler", "scheduler", env.get("scheduler", {}))]
    specs += [Spec(name, name, env.get(name, {})) for name in more]
    async with (
        Servers(copy_installation(directory), nodes=nodes) as servers,
        Supervisor(specs, servers.endpoints, directory) as supervisor,
    ):
        await supervisor.wait_leading(240)
        database = Database(servers.endpoints.postgres)
        try:
            yield System(supervisor, servers.endpoints, LogReader(database), servers)
        finally:
            await database.close()


async def koord(system: System, *arguments: str) -> str:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", *arguments,
        env={"PATH": "/usr/bin:/bin", "KOORD_POSTGRES": system.endpoints.postgres, "KOORD_NATS": system.endpoints.nats},
        cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await child.communicate()
    assert child.returncode == 0, output.decode()
    return output.decode()
