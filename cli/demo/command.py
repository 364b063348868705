"""`koord demo`: two runs of the whole system on a simulated cluster, with and without load-awareness, and what they
show.
"""

import asyncio
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from textwrap import indent

import click

from cli.commands.audit import verify_all
from cli.commands.why_pod import explain_pod
from cli.demo.demo_run import Scale, run
from cli.demo.load_spread import Spread, spread_of
from cli.demo.profile_without_load_aware import without_load_awareness
from cli.demo.run_progress import Progress
from cli.supervisor.system_folder import record_database
from cli.supervisor.system_servers import Servers
from cli.terminal.output import show_lines, show_table
from services.scheduler.explain.explanation_text import render
from shared.errors import KoordError
from shared.log.admin.session import reading
from shared.log.admin.verify import Verified


@click.command()
@click.option(
    "--nodes", type=click.IntRange(min=2), default=100, show_default=True, help="Nodes; a fifth of them runs hot."
)
@click.option(
    "--pods", type=click.IntRange(min=1), default=1000, show_default=True, help="LS and batch pods, half each."
)
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="Keep data and logs here, to be read with --dir DIR/aware and DIR/blind; removed at the end otherwise.",
)
def demo(*, nodes: int, pods: int, folder: Path | None) -> None:
    """Place 1,000 pods on 100 simulated nodes and show what came of it.

    Starts Postgres, NATS and the services, twice: with the shipped profile and with one that leaves load-awareness out.
    Takes about a minute, needs no cluster and leaves nothing running.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):  # a terminal that goes away: as Ctrl-C, so that nothing is left
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    with ExitStack() as kept:
        temporary = folder is None
        folder = folder or Path(
            kept.enter_context(tempfile.TemporaryDirectory(prefix="koord-demo-", ignore_cleanup_errors=True))
        )
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(_demo(Scale(nodes, pods), folder.absolute()))
        if not temporary:
            click.echo(f"The logs of both runs are kept: `koord events --dir {folder / 'aware'}`, and .../blind.")


async def _demo(scale: Scale, folder: Path) -> None:
    started = time.monotonic()
    compiling = asyncio.create_task(_compile())
    async with Servers(folder, alone=True) as servers:
        aware = await servers.create_database("aware")
        blind = await servers.create_database("blind")
        for name in ("aware", "blind"):
            record_database(folder / name, name)
        if not compiling.done():
            click.echo("The scheduler's passes are compiled: some 20 s, once on a machine.")
        await compiling
        with_load = await run("With load-awareness", scale, aware, folder / "aware", config=None)
        profile = without_load_awareness(folder)
        without_load = await run("Without load-awareness", scale, blind, folder / "blind", config=profile)
        verified = [*await verify_all(aware.postgres), *await verify_all(blind.postgres)]
        _summarise(scale, with_load, without_load)
        await _explain(aware.postgres, with_load, without_load)
        _say_verified(verified)
    click.echo(f"\n{time.monotonic() - started:.0f} s in all; nothing is left running. Next: `koord up`, or README.md.")


async def _compile() -> None:
    """Compiles the kernels as the first start of a scheduler does, so that this time does not count as placing."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import services.scheduler.in_memory_scheduler", stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await child.wait()  # should it fail, the scheduler does too, and says why
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()  # while the loop runs: its end is reported there


def _summarise(scale: Scale, with_load: Progress, without_load: Progress) -> None:
    rate = scale.pods / with_load.placing_s
    click.echo(
        f"\n{scale.pods:,} pods placed and bound on {scale.nodes} nodes in {with_load.placing_s:.1f} s: {rate:,.0f} a second, each"
        f" decision in the log.\n{len(with_load.hot)} nodes run hot from work that no pod requested. Measured cpu of the nodes afterwards:\n"
    )
    columns = ("placed", "pods on hot nodes", "hottest node", "nodes above 80 %", "deviation", "nodes by cpu, 0..100 %")
    runs = (("with load-awareness", spread_of(with_load)), ("without", spread_of(without_load)))
    show_table(columns, [_row(name, spread) for name, spread in runs])


def _row(name: str, spread: Spread) -> tuple[object, ...]:
    return (
        name,
        spread.pods_on_hot,
        f"{spread.highest:.0f} %",
        spread.above_80,
        f"{spread.deviation:.1f}",
        f"|{spread.picture()}|",
    )


async def _explain(postgres: str, with_load: Progress, without_load: Progress) -> None:
    """Describes one pod, the same in both runs, that only load-awareness kept from a hot node."""
    hot, places = with_load.hot, with_load.places
    kept_away = [pod for pod, node in sorted(without_load.places.items()) if node in hot and places[pod] not in hot]
    if not kept_away:
        return
    pod = kept_away[0]
    blind, aware = without_load.places[pod], with_load.places[pod]
    click.echo(
        f"\n{pod} went to {blind} without load-awareness, which is hot ({without_load.loads[blind].cpu_percent:.0f} % cpu), and to"
        f" {aware} with it ({with_load.loads[aware].cpu_percent:.0f} %).\n`koord why pod {pod}` says:\n"
    )
    async with reading(postgres) as log:
        explanation = render(await explain_pod(log, pod))
    show_lines(indent(explanation, "  ").splitlines())


def _say_verified(verified: list[Verified]) -> None:
    broken = [f"{one.context}/{one.broken}: {one.reason}" for one in verified if not one.ok]
    if broken:
        raise KoordError(f"a log does not fit its chain: {'; '.join(broken)}")
    click.echo(f"\nLog verified: {sum(one.checked for one in verified):,} events fit their chains of digests.")
