"""`koord up`: the whole system on this machine."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec.structs import replace

from cli.service_list import AGENTS, SERVICES, SHARDED, check_settings, metrics_shards, variables_without_effect
from cli.supervisor import first_compilation
from cli.supervisor.audit_key import with_audit
from cli.supervisor.cluster_folder import folder_of, refuse_managed_cluster
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.login_environment import node_of
from cli.supervisor.server_notes import ServerNotes
from cli.supervisor.signals import Interrupts
from cli.supervisor.status_view import View
from cli.supervisor.supervisor import Spec, Supervisor, Unit
from cli.supervisor.system_folder import DEFAULT, announced, holds_system, taken
from cli.supervisor.system_servers import Servers
from cli.terminal.awaited import Awaited, shown
from cli.terminal.durations import second
from cli.terminal.output import show_text
from shared.errors import KoordError
from shared.kube.cluster_identity import ClusterTaken, WrongCluster

NODES = "KOORD_SIMULATOR_NODES"
DEFAULT_SCHEDULER = "default-scheduler"
READERS_S = 10.0
"""Seconds that commands may still read the log of the stopped system: each holds the folder for its own duration."""


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster to work on; without one the simulator stands in for it.",
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=DEFAULT,
    show_default=True,
    help="Where data and logs lie, in a folder for each cluster.",
)
@click.option(
    "--service",
    "chosen",
    multiple=True,
    metavar="NAME",
    type=click.Choice((*SERVICES, *AGENTS)),
    help=f"Run only this one of {', '.join((*SERVICES, *AGENTS))}; may be repeated.",
)
@click.option("--shadow", is_flag=True, help="Write nothing to the cluster: end every intent as suppressed.")
@click.option(
    "--shadow-scheduler",
    metavar="NAME",
    help=f"Compare this scheduler's placements with ours.  [default with --shadow: {DEFAULT_SCHEDULER}]",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
def up(
    *,
    kubeconfig: Path | None,
    folder: Path,
    chosen: tuple[str, ...],
    shadow: bool,
    shadow_scheduler: str | None,
    log_level: str,
) -> None:
    """Run the whole system on this machine until Ctrl-C.

    Starts Postgres and NATS (or uses those of KOORD_POSTGRES and KOORD_NATS), migrates, and keeps each service running
    as a process of its own. Ctrl-C drains and stops all of it; a second one does not wait.

    A new simulated cluster has 10 nodes; KOORD_SIMULATOR_NODES, KOORD_SIMULATOR_PODS and the other settings that
    `koord run simulator --help` prints make it another one. One that exists keeps its nodes.

    With --shadow it runs beside the scheduler of a cluster and a read-only account is enough; `koord shadow report`
    says what came of it.

    The data and logs of each cluster are in a folder of its own below --dir: `simulated`, or `cluster-` and the
    beginning of the cluster's UID.
    """
    if shadow and not kubeconfig:
        raise click.UsageError("--shadow needs --kubeconfig: it runs beside the scheduler of a cluster")
    specs = shadowed(specs_for(kubeconfig, chosen), shadow=shadow, scheduler=shadow_scheduler)
    check_settings((spec.service for spec in specs), os.environ)
    system = asyncio.run(_folder(folder, kubeconfig))
    if not kubeconfig and NODES in os.environ and (system / "postgres" / "data").is_dir():
        show_text(
            f"koord: {NODES} is of a new cluster; the one in {system} keeps its nodes. A new one needs a folder of its own: "
            "`koord up --dir FOLDER`",
            err=True,
        )
    if kubeconfig and any(spec.service == "gateway" for spec in specs) and not (shadow or _has_log(system)):
        asyncio.run(refuse_managed_cluster(str(kubeconfig.absolute())))
    with taken(system, patience_s=READERS_S, shadow=shadow):
        asyncio.run(_up(specs, system.absolute(), log_level))


async def _folder(folder: Path, kubeconfig: Path | None) -> Path:
    awaited = Awaited()
    async with shown(awaited):
        return await awaited.awaits("the API server", folder_of(folder, kubeconfig))


def _has_log(system: Path) -> bool:
    """Returns whether there may be a log, which may be that of the cluster's manager: its replica, or an earlier run."""
    return "KOORD_POSTGRES" in os.environ or holds_system(system)


def specs_for(kubeconfig: Path | None, chosen: tuple[str, ...] = ()) -> list[Spec]:
    """The processes of a system: with a cluster the gateway, else the simulator, and what follows them."""
    names = chosen or (
        "gateway" if kubeconfig else "simulator",
        "scheduler",
        "quota-ledger",
        "slo-controller",
        "descheduler",
        *SHARDED,
        "audit",
    )
    own: dict[str, Mapping[str, str]] = {"simulator": {NODES: os.environ.get(NODES, "10")}}
    if kubeconfig:
        own["gateway"] = {"KOORD_GATEWAY_KUBECONFIG": str(kubeconfig.absolute())}
    return [spec for name in names for spec in _replicas(name, own.get(name, {}))]


def _replicas(name: str, env: Mapping[str, str]) -> list[Spec]:
    """One process of a service, or one for each shard."""
    shards = metrics_shards()
    if name not in SHARDED or shards == 1:
        return [Spec(name, name, env)]
    return [Spec(f"{name}-{shard}", name, {**env, "KOORD_SHARD": str(shard)}) for shard in range(shards)]


def shadowed(specs: list[Spec], *, shadow: bool, scheduler: str | None) -> list[Spec]:
    """The same processes in shadow mode; as they are without."""
    own: dict[str, dict[str, str]] = {}
    if shadow:
        own["gateway"] = {"KOORD_GATEWAY_SHADOW": "true"}
    if name := scheduler or (DEFAULT_SCHEDULER if shadow else ""):
        own["scheduler"] = {"KOORD_SCHEDULER_SHADOW_SCHEDULER": name}
    return [spec._replace(env={**spec.env, **own.get(spec.service, {})}) for spec in specs]


def shadow_words(specs: list[Spec]) -> str:
    """Returns what shadow mode does with the cluster, and what is compared; empty where neither is the case."""
    env = {name: text for spec in specs for name, text in spec.env.items()}
    compared = env.get("KOORD_SCHEDULER_SHADOW_SCHEDULER", "")
    words = ["shadow mode: nothing is written to the cluster"] if env.get("KOORD_GATEWAY_SHADOW") else []
    words += [f"placements of {compared} are compared (`koord shadow report`)"] if compared else []
    return "; ".join(words)


async def _up(specs: list[Spec], folder: Path, log_level: str) -> None:
    for text in variables_without_effect((spec.service for spec in specs), os.environ):
        show_text(f"koord: {text}", err=True)
    click.echo(f"data and logs: {folder}", err=True)
    if words := shadow_words(specs):
        click.echo(f"  {words}", err=True)
    with Interrupts() as interrupts:
        async with _servers(specs, folder) as servers:
            endpoints = servers.endpoints
            click.echo(_command_hint(endpoints), err=True)
            if any(spec.service == "scheduler" for spec in specs) and first_compilation.is_due(os.environ):
                click.echo(first_compilation.NOTE, err=True)
            supervisor = Supervisor(
                with_audit(specs, folder), endpoints, folder, log_level=log_level, env=servers.disk_settings
            )
            pages = {name: unit.http for name, unit in supervisor.units.items()}
            notes = ServerNotes(servers, folder)
            with announced(folder, replace(endpoints, services=pages)), View(supervisor.units.values()) as view:
                await supervisor.start()
                while not interrupts.first.is_set():
                    for note in await notes.mend(supervisor.units.values()):
                        view.note(note)  # a server that is the cause comes before the services that wait for it
                    view.update()
                    await supervisor.changed(timeout_s=1)
                    refuse_wrong_cluster(supervisor.units.values())
                stopping = asyncio.create_task(supervisor.stop())
                hurry = asyncio.create_task(interrupts.second.wait())
                while not stopping.done():
                    view.update()
                    await asyncio.wait({stopping, hurry}, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
                    if hurry.done():
                        supervisor.kill_all()
                hurry.cancel()
                await stopping
                view.update()


@asynccontextmanager
async def _servers(specs: list[Spec], folder: Path) -> AsyncIterator[Servers]:
    """Starts the servers, and shows which of them starts."""
    nodes = {node_of(spec.env, os.environ) for spec in specs if spec.service in AGENTS}
    awaited = Awaited(None if sys.stderr.isatty() else _starting)
    async with AsyncExitStack() as running:
        async with shown(awaited, ""):
            servers = Servers(folder, nodes=sorted(filter(None, nodes)), awaited=awaited)
            await running.enter_async_context(servers)
        yield servers


def _starting(name: str) -> None:
    """Prints what is started, where there is no terminal."""
    click.echo(f"{second(datetime.now(UTC))} {name}", err=True)


def refuse_wrong_cluster(units: Iterable[Unit]) -> None:
    """Ends the system whose log describes another cluster, or whose cluster another live system manages: a restart of the
    service would end in the same way.

    Raises:
        KoordError: with the text of WrongCluster or ClusterTaken.
    """
    for unit in units:
        name, _, text = unit.why.partition(": ")
        if name in (WrongCluster.__name__, ClusterTaken.__name__):
            raise KoordError(text)


def _command_hint(endpoints: Endpoints) -> str:
    """Returns the shell line that gives other commands the operator's login; no secret is shown."""
    if not endpoints.credentials:
        return "  all services use the logins of KOORD_POSTGRES and KOORD_NATS; `koord credentials init` gives each its own"
    folder = Path(endpoints.credentials)
    if folder.is_relative_to(Path.cwd()):
        folder = folder.relative_to(Path.cwd())
    return f"  operator's login: set -a; . {folder}/env/operator.env; set +a"
