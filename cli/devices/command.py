"""The `koord devices` command."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import click
import msgspec

from cli.devices.drawing import drawn, small
from cli.devices.listed_devices import ClusterDevices, GpuSums, NodeDevices, Stranded
from cli.devices.read_devices import cluster_devices
from cli.recorded_instant import require_past
from cli.scheduling.recorded_state import scheduler_state
from cli.supervisor.log_access import log_of
from cli.terminal import name_completion
from cli.terminal.kind_names import without_kind
from cli.terminal.options import folder_option, outputs
from cli.terminal.output import Format, show, show_table
from cli.terminal.time_arguments import at_option
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.first_names import first_names
from shared.log.admin.session import reading


@click.command
@click.argument("node", required=False, shell_complete=name_completion.nodes)
@click.option("-A", "--all-namespaces", is_flag=True, help="All of them: nodes are not listed by namespace.")
@at_option
@outputs("table", "wide", "name", "json", "yaml")
@click.option("--no-headers", is_flag=True, help="Leave out the summary and the line of titles.")
@folder_option
def devices(
    *, node: str | None, all_namespaces: bool, at: datetime | None, output: Format, no_headers: bool, folder: Path
) -> None:  # fmt: skip
    """Show the devices of nodes: the share that each pod has, and what is stranded.

    Without NODE: the cluster, and a line for each node. With it, or with -o wide: a drawing of each node's devices, in
    which a pod has a letter and an unhealthy device is crossed out.

    Usable is what the pods that request GPUs, placed and waiting ones, could use of the free GPUs on average; the rest
    is stranded. The optimum is what these pods could have if all were placed anew.
    """
    del all_namespaces  # accepted as for other kinds
    with log_of(folder) as postgres:
        found = asyncio.run(_read(postgres, at))
    shown = found.nodes if node is None else _only(found.nodes, without_kind(node, None))
    if output == "name":
        for each in shown:
            click.echo(f"node/{each.name}")
    elif output in ("table", "wide"):
        _print(found, shown, is_one=node is not None, wide=output == "wide", no_headers=no_headers)
    elif node is not None:
        show(shown[0], output)
    else:
        show(found, output)


async def _read(postgres: str, at: datetime | None) -> ClusterDevices:
    async with reading(postgres) as log:
        await require_past(log, at)
        return cluster_devices(await scheduler_state(log, at))


def _only(nodes: Sequence[NodeDevices], name: str) -> tuple[NodeDevices, ...]:
    found = tuple(each for each in nodes if each.name == name)
    if not found:
        names = [each.name for each in nodes]
        known = f"known: {first_names(names, 10)}" if names else "there are none"
        raise KoordError(f"there is no node with a Device {name!r}{did_you_mean(name, names)}; {known}")
    return found


def _print(
    found: ClusterDevices, shown: Sequence[NodeDevices], *, is_one: bool, wide: bool, no_headers: bool
) -> None:  # fmt: skip
    if not found.nodes:
        click.echo("No Device objects found: no node reports devices.", err=True)
        return
    if not is_one:
        if not no_headers:
            click.echo("\n".join(_summary(found)))
            click.echo()
        _show_nodes(shown, no_headers=no_headers)
    for each in shown if is_one or wide else ():
        if not is_one:
            click.echo()
        click.echo("\n".join(_node_lines(each, wide=wide)))


def _summary(found: ClusterDevices) -> Iterator[str]:
    sums = found.sums
    yield f"{_gpus(sums.gpus)} on {len(found.nodes)} node{'' if len(found.nodes) == 1 else 's'}{_unhealthy(sums)}: {_allocated(sums)}"
    yield f"  {_use_of_the_rest(sums)}"
    if found.optimum is None:
        yield f"  optimum: unknown; {found.without_optimum}"
    else:
        gap = _number(found.optimum.gap)
        yield f"  optimum: {_number(found.optimum.gpus)}, which is {gap} more than is allocated and usable"
    yield f"  workload: {found.workload_pods} pods that request GPUs, of {found.workload_types} types"


def _show_nodes(nodes: Sequence[NodeDevices], *, no_headers: bool) -> None:
    titles = ("node", "model", "gpus", "allocated", "free", "usable", "stranded by", "devices")
    rows = [
        (
            each.name,
            each.model or "-",
            each.sums.gpus,
            _number(each.sums.allocated),
            _number(each.sums.free),
            "-" if each.sums.usable is None else _number(each.sums.usable),
            _reasons(each.sums.stranded) or "-",
            small(each) or "-",
        )
        for each in nodes
    ]
    show_table(titles, rows, header=not no_headers, right=("gpus", "allocated", "free", "usable"))


def _node_lines(node: NodeDevices, *, wide: bool) -> Iterator[str]:
    sums = node.sums
    if sums.gpus or sums.unhealthy:
        model = f" ({node.model})" if node.model else ""
        yield f"{node.name}{model}: {_gpus(sums.gpus)}{_unhealthy(sums)}: {_allocated(sums)}"
        yield f"  {_use_of_the_rest(sums)}"
    else:
        yield f"{node.name}: no GPUs"
    yield from drawn(node, wide=wide)
    if node.unrecorded:
        yield f"it is not recorded which GPUs these pods have: {first_names(list(node.unrecorded), 10)}"


def _gpus(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"


def _unhealthy(sums: GpuSums) -> str:
    return f" and {sums.unhealthy} unhealthy" if sums.unhealthy else ""


def _allocated(sums: GpuSums) -> str:
    percent = f" ({100 * sums.allocated / sums.gpus:.1f} %)" if sums.gpus else ""
    return f"{_number(sums.allocated)} allocated{percent}, {_number(sums.free)} free"


def _use_of_the_rest(sums: GpuSums) -> str:
    if sums.usable is None:
        return "of the free ones: unknown how much is usable, since no pod requests GPUs"
    reasons = _reasons(sums.stranded)
    stranded = f"{_number(sums.stranded.total)} stranded" + (f" by {reasons}" if reasons else "")
    return f"of the free ones: {_number(sums.usable)} usable, {stranded}"


def _reasons(stranded: Stranded) -> str:
    parts = sorted(msgspec.structs.asdict(stranded).items(), key=lambda each: -each[1])
    return ", ".join(f"{name} {_number(size)}" for name, size in parts if round(size, 2))


def _number(gpus: float) -> str:
    return f"{gpus:.2f}".rstrip("0").rstrip(".")
