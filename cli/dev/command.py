"""`koord dev`: what a developer of Koordstream needs at a terminal."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click

from cli.dev.simulated_objects import apply, delete, patch
from cli.processes.child_process import Process, ProgramFailed
from cli.terminal.lazy_group import Group
from shared.errors import KoordError

SYSTEM_NAMESPACES = ("default", "kube-system")


@click.group(cls=Group)
def dev() -> None:
    """Tools for developing Koordstream, and for trying it: a cluster of its own, and objects of the simulated one."""


for each in (apply, delete, patch):
    dev.add_command(each)


@dev.command()
@click.option(
    "--nodes",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Nodes to create (32 cores, 256Gi; no kubelet).",
)
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), help="Keep everything here and continue with it next time."
)
@click.option("--controllers/--no-controllers", default=True, help="Run kube-controller-manager.", show_default=True)
@click.option("--scheduler", is_flag=True, help="Run kube-scheduler.")
def cluster(*, nodes: int, folder: Path | None, controllers: bool, scheduler: bool) -> None:
    """Run a Kubernetes control plane on 127.0.0.1 until Ctrl-C: etcd and kube-apiserver, with the CRDs of k8s/crds.

    There is no kubelet and no container: a bound pod is shown as Running, and ends when it is deleted. Each node has a
    NodeResourceTopology, two NUMA nodes of 16 CPUs, so that pods can get CPUs of their own.
    """
    try:
        from cli.dev.fake_kubelet import FakeKubelets
        from cli.dev.fake_nodes import create_nodes, create_topologies, node_object
        from cli.dev.local_control_plane import Cluster
    except ModuleNotFoundError as error:
        raise KoordError(f"{error}: install the extra, `pip install 'koordstream[cli,dev]'`") from error
    _react_to_signals(_end_the_start)
    with Cluster(folder) as running:
        running.apply_crds()
        if controllers:
            running.start_controllers()
        if scheduler:
            running.start_scheduler()
        have = {node["metadata"]["name"] for node in running.api.call("GET", "/api/v1/nodes")["items"]}
        names = [f"node-{number}" for number in range(nodes)]
        missing = [name for name in names if name not in have]
        create_nodes(running.api, [node_object(name) for name in missing])
        create_topologies(running.api, missing)
        for namespace in SYSTEM_NAMESPACES:
            running.create_namespace(namespace)  # with its service account, which no controller may be there to create
        FakeKubelets(running.api).start()
        click.echo(f"kube-apiserver listens on {running.url}; logs and data are in {running.folder}")
        click.echo(f"  export KUBECONFIG={running.kubeconfig()}")
        click.echo("  kubectl get nodes        koord up --kubeconfig $KUBECONFIG")
        click.echo(
            "There is no kubelet: pods on its nodes run no container, are shown as Running, and end when deleted"
        )
        click.echo("Ctrl-C ends it" + ("" if folder else " and removes all of it"))
        ended = threading.Event()
        _react_to_signals(lambda *_: ended.set())
        parts = [part for part in (running.etcd, running.apiserver, running.controllers, running.scheduler) if part]
        while not ended.wait(1):
            _expect_running(parts)


@dev.command("simulate-faults")
@click.option("--seeds", type=click.IntRange(min=1), default=100, show_default=True, help="How many seeds to run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The first of them.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=None, help="Processes side by side.  [default: as many as cores]"
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Run the steps of this file instead of those that the seed draws.",
)
@click.option(
    "--moves-pods",
    is_flag=True,
    help="Run a descheduler, and what it has to do, with every seed; otherwise with a quarter of them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def simulate_faults(
    *, seeds: int, seed: int, processes: int | None, plan_file: Path | None, moves_pods: bool, as_json: bool
) -> None:
    """Run the whole system in one process under simulated faults, once for each seed; exit with 1 on a violation."""
    try:
        from cli.dev.fault_simulation.report import simulate_and_print
    except ModuleNotFoundError as error:
        raise KoordError(f"{error}: install the extra, `pip install 'koordstream[all]'`") from error
    plan = plan_file.read_bytes() if plan_file else None
    numbers, side_by_side = range(seed, seed + seeds), processes or os.cpu_count() or 1
    if not simulate_and_print(numbers, side_by_side, plan, moves_pods=moves_pods, as_json=as_json):
        raise SystemExit(1)


def _react_to_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _end_the_start(_number: int, _frame: FrameType | None) -> None:
    """Ends a start that is under way, and what it has started; a second signal does not disturb that."""
    _react_to_signals(signal.SIG_IGN)
    raise KeyboardInterrupt


def _expect_running(parts: list[Process]) -> None:
    for part in parts:
        if not part.running:
            raise ProgramFailed(f"{part.name} has ended; {part.log} ends with:\n{part.tail()}")
