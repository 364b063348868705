"""`koord defrag`: which few moves of running pods would admit a waiting pod or gang."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from cli.scheduling.answer_from_log import answer
from cli.scheduling.recorded_state import scheduler_state
from cli.terminal.object_name import full_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, table_lines
from services.scheduler.configuration import config_of
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.movable_pods import why_fixed
from services.scheduler.explain.moves_that_admit_unit import UnitMoves, moves_for
from services.scheduler.explain.waiting_unit import waiting_unit
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.log.reader import LogReader


class DefragmentationMove(msgspec.Struct, frozen=True):
    """A move, in the order in which they are made: its place is held before the pod leaves."""

    pod: str
    source: str
    destination: str


class Defragmentation(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        waits: the pod or gang.
        nodes: waiting pod -> node that it would get.
        problem: why there is no plan; empty with one.
    """

    waits: str
    nodes: dict[str, str]
    moves: tuple[DefragmentationMove, ...]
    problem: str = ""


@click.command
@click.option("--for", "name", metavar="NAME", required=True, help="The waiting pod or gang.")
@click.option("-n", "--namespace", default=None, help="Its namespace.  [default: default]")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the moves: the command makes none, so this is required. The plugin Defragment of the descheduler does.",
)
@output_option
@folder_option
def defrag(*, name: str, namespace: str | None, dry_run: bool, output: Format, folder: Path) -> None:
    """Show which few moves of running pods would admit a waiting pod or gang.

    Every move has a destination with capacity now, by all plugins of the profile, and stays within disruption budgets.
    Pods without a controller, of a DaemonSet, with local storage, in a gang, in a Reservation, and critical ones do not
    move.
    """
    if not dry_run:
        raise click.UsageError("koord defrag only plans: give --dry-run")
    unit = full_name(name, namespace)
    answer(folder, output, lambda log: _planned(log, unit), lines_of)


async def _planned(log: LogReader, name: str) -> Defragmentation:
    view = await scheduler_state(log)
    cache = CycleInputs(view, config_of(view).profiles)
    cache.settle()
    pods = waiting_unit(cache, name)
    found = moves_for(cache, pods, lambda pod: why_fixed(view, pod), time.time_ns())
    return answer_of(name, pods, found)


def answer_of(name: str, pods: Sequence[PodRecord], found: UnitMoves) -> Defragmentation:
    """Returns the answer of the command to a plan for the waiting pods of a unit."""
    names = {pod.uid: pod.name for pod in pods}
    return Defragmentation(
        name,
        {names[uid]: node for uid, node in found.nodes.items()},
        tuple(DefragmentationMove(move.pod, move.source, move.destination) for move in found.moves),
        found.problem,
    )


def lines_of(found: Defragmentation) -> Iterator[str]:
    """Yields the lines of an answer."""
    if found.problem:
        yield f"{found.waits}: {found.problem}"
        return
    if not found.moves:
        yield f"{found.waits} fits without a move; koord why pod says what else it waits for"
    else:
        count = "one move" if len(found.moves) == 1 else f"{len(found.moves)} moves"
        yield f"{found.waits} would fit after {count}:"
        yield ""
        rows = [(str(number), each.pod, each.source, each.destination) for number, each in enumerate(found.moves, 1)]
        yield from table_lines(("", "pod", "from", "to"), rows)
    yield ""
    yield from table_lines(("waiting pod", "node"), list(found.nodes.items()))
