"""`koord replay`: whether what was decided would be decided again."""

import asyncio
import json
from datetime import datetime
from pathlib import Path

import click
import msgspec

from cli.replay.run_replay import Replayed, replay
from cli.supervisor.log_access import log_of
from cli.terminal.options import folder_option
from cli.terminal.output import show_lines, show_text
from cli.terminal.time_arguments import Instant
from shared.errors import KoordError
from shared.log.admin.session import reading

SERVICES = ("scheduler",)


class DecidedDifferently(KoordError):
    """A recorded decision has another result today."""


@click.command(name="replay")
@click.option("--from", "begin", type=Instant(), help="First decision: an instant, or an age such as 10m.")
@click.option("--to", "end", type=Instant(), help="Last decision; without it the newest.")
@click.option("--service", type=click.Choice(SERVICES), default=SERVICES[0], show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@folder_option
def replay_command(*, begin: datetime | None, end: datetime | None, service: str, as_json: bool, folder: Path) -> None:
    """Repeat recorded decisions and compare them bit for bit.

    Each cycle of the scheduler is decided again from the State at the positions that it had seen, with the
    configuration, the instant and the response of the quota ledger that are recorded with it. The first difference is
    shown with these inputs, and the exit code is 1.
    """
    if begin is not None and end is not None and begin >= end:
        raise click.UsageError("--from is not before --to; an age such as 1h is earlier than 10m")
    with log_of(folder) as postgres:
        found = asyncio.run(_replay(postgres, begin, end))
    if as_json:
        show_text(msgspec.json.encode(found).decode())
    else:
        show_lines(lines(found))
    if found.difference is not None:
        raise DecidedDifferently(
            f"{found.decisions - found.equal} of {found.decisions} decisions of {service} have another result today; the first: "
            f"{found.difference.event}"
        )


async def _replay(postgres: str, begin: datetime | None, end: datetime | None) -> Replayed:
    from cli.replay.replay_scheduler import SchedulerReplay

    async with reading(postgres) as log:
        return await replay(log, SchedulerReplay(), begin, end)


def lines(found: Replayed) -> list[str]:
    """Returns a replay for people."""
    times = f"{found.spans_s / found.took_s:,.0f} times real time"
    text = [
        f"{found.service}: {found.equal:,} of {found.decisions:,} decisions are equal bit for bit",
        f"  from {found.first} to {found.last}, repeated in {found.took_s:.1f} s: {times}",
        f"  decided by {', '.join(found.releases)}; repeated by {found.today}",
        f"  {found.others:,} other appends (statuses, starts, configurations) are not repeated",
    ]
    if found.difference is not None:
        each = found.difference
        text += [
            f"  first difference: {each.event} at {each.path or 'the event'}",
            f"    recorded  {json.dumps(each.recorded)}",
            f"    today     {json.dumps(each.again)}",
            f"    inputs    seen {json.dumps(each.seen)}, now_ns {each.now_ns}, config {each.config}",
        ]
    return text
