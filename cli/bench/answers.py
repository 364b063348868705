"""`koord bench answers`: how long a person waits for each reading command, with a long log.

Every command is a process of its own, from its start to its end; Postgres runs already. The log is made once and kept
in ~/.cache/koordstream, for a million events take minutes.
"""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import click
import msgspec

from cli.bench.answers_history import make_log
from cli.bench.synthetic_history import WAVE
from cli.embedded import EmbeddedPostgres
from cli.terminal.output import show_table
from shared.kube.instants import instant_text
from shared.log.admin.server_check import size_of
from shared.log.admin.session import opened, reading

VERIFIES = ("quota_verify_s", "audit_verify_s")
"""Commands that read everything; they show their progress."""


class AnswerFigures(msgspec.Struct, frozen=True):
    """Figures of `--json`: of each command the median of the runs.

    Attributes:
        slowest_s: of those that need not read everything.
        seconds: from a command's start to its end.
        cpu_seconds: processor time of the command's process; Postgres works besides it.
        bytes_per_event: of the tables of events with their indexes.
        bytes_per_pod: the same, of all events of a pod, for pods that came and went.
        wal_bytes: of the server's write-ahead log.
        load_1m: before the first command and after the last.
    """

    events: int
    runs: int
    slowest_s: float
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    bytes_per_event: int
    bytes_per_pod: int
    wal_bytes: int
    load_1m: tuple[float, float]


@click.command()
@click.option(
    "--events", type=click.IntRange(min=10_000), default=120_000, show_default=True, help="Events of the log."
)
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each command.")
@click.option("--only", multiple=True, help="Only figures whose name begins like this; may be repeated.")
@click.option("--verify/--no-verify", default=True, help="Whether `quota verify` and `audit verify` run, once each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def answers(*, events: int, runs: int, only: tuple[str, ...], verify: bool, as_json: bool) -> None:
    """Measure how long each reading command takes with a long log.

    The log is kept in ~/.cache/koordstream/bench-answers-EVENTS, with a Postgres of its own.
    """
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "koordstream" / f"bench-answers-{events}"
    whole = folder / "whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
    postgres = EmbeddedPostgres(folder / "postgres")
    asyncio.run(postgres.start())
    try:
        if not whole.exists():
            with click.progressbar(length=events, label=f"making {events:,} events", file=sys.stderr) as bar:
                asyncio.run(make_log(postgres.url, events, bar.update))
            whole.touch()
        wal_bytes = sum(file.stat().st_size for file in (postgres.data / "pg_wal").iterdir() if file.is_file())
        figures = _measure(postgres.url, events, runs, only, wal_bytes, verify=verify)
    finally:
        asyncio.run(postgres.stop())
    if as_json:
        click.echo(msgspec.json.encode({**msgspec.to_builtins(figures), **figures.seconds}))
        return
    rows = [(name, str(seconds), str(figures.cpu_seconds[name])) for name, seconds in figures.seconds.items()]
    rows += [(name, str(getattr(figures, name)), "") for name in ("bytes_per_event", "bytes_per_pod", "wal_bytes")]
    show_table(("figure", "value", "cpu s"), rows)


def _measure(
    postgres: str, events: int, runs: int, only: tuple[str, ...], wal_bytes: int, *, verify: bool
) -> AnswerFigures:
    load_before = os.getloadavg()[0]
    recent, bytes_per_event, pods = asyncio.run(find_facts(postgres))
    seconds: dict[str, float] = {}
    cpu_seconds: dict[str, float] = {}
    for name, arguments in commands(recent).items():
        is_verify = name in VERIFIES
        if (only and not name.startswith(only)) or (is_verify and not verify):
            continue
        taken = [_seconds(postgres, arguments) for _ in range(1 if is_verify else runs)]
        seconds[name], cpu_seconds[name] = (round(median(column), 2) for column in zip(*taken, strict=True))
    slowest = max((each for name, each in seconds.items() if name not in VERIFIES), default=0.0)
    loads = (load_before, os.getloadavg()[0])
    bytes_per_pod = bytes_per_event * events // pods
    return AnswerFigures(events, runs, slowest, seconds, cpu_seconds, bytes_per_event, bytes_per_pod, wal_bytes, loads)


async def find_facts(postgres: str) -> tuple[Mapping[str, str], int, int]:
    """Returns a pod that is newly placed and an instant shortly before the log's end; bytes of an event; placed pods."""
    async with reading(postgres) as log:
        placed = [row async for row in log.rows(context="scheduling", kind="PodPlaced", newest=1)]
        cycle = [row async for row in log.rows(context="scheduling", kind="CycleDecided", newest=1)]
    async with opened(postgres) as database:
        sizes = [await size_of(database, context) for context in ("cluster", "scheduling", "quota", "slo")]
    bytes_per_event = sum(size.size_bytes for size in sizes) // sum(size.head for size in sizes)
    end_ns = max(size.head_at_ns for size in sizes)
    recent = {"pod": placed[0].key, "since": instant_text(end_ns - 60 * 10**9), "at": instant_text(end_ns)}
    return recent, bytes_per_event, int(cycle[0].key) * WAVE


def commands(recent: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns figure -> the command that it measures."""
    pod = recent["pod"]
    return {
        "help_s": ["--help"],
        "why_s": ["why", "pod", pod],
        "why_node_s": ["why", "node", "node-0007"],
        "why_slowdown_s": ["why", "slowdown", pod],
        "why_gang_s": ["why", "gang", "shop/train"],
        "events_s": ["events"],
        "events_key_s": ["events", "--key", pod],
        "events_since_s": ["events", "--since", recent["since"]],
        "events_type_s": ["events", "--type", "NodeObserved"],
        "events_type_absent_s": ["events", "--type", "PlacementCompared"],
        "events_parked_s": ["events", "parked"],
        "quota_tree_s": ["get", "quotas"],
        "quota_tree_at_s": ["get", "quotas", "--at", recent["at"]],
        "quota_explain_s": ["explain", "quota", "team-3-4"],
        "quota_why_s": ["explain", "pod", pod],
        "quota_whatif_s": ["whatif", "quota", "--set", "team-3-4.max.cpu=70"],
        "pending_s": ["pending", "-A"],
        "shadow_report_s": ["shadow", "report"],
        "config_status_s": ["get", "configs"],
        "config_show_s": ["get", "config", "quota", "-o", "yaml"],
        "node_explain_s": ["explain", "node", "node-0007"],
        "node_explain_at_s": ["explain", "node", "node-0007", "--at", recent["at"]],
        "followers_s": ["followers", "list"],
        "quota_verify_s": ["verify", "quotas"],
        "audit_verify_s": ["audit", "verify"],
    }


def _seconds(postgres: str, arguments: Sequence[str]) -> tuple[float, float]:
    """Runs a command; returns the seconds until it has ended, and those of a processor that it took.

    Raises:
        CalledProcessError: it failed; its stderr is on ours.
    """
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "KOORD_POSTGRES": postgres},
    )
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
