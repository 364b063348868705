"""`koord log`: the log as files, for cold storage and for other tools."""

import asyncio
from pathlib import Path

import click

from cli.export.export_file import COMPRESSIONS, FORMATS, Kind
from cli.export.export_run import Exported, SeqOrInstant, export_all
from cli.supervisor.log_access import log_of
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option
from cli.terminal.output import show_table


@click.group(cls=Group)
def log() -> None:
    """Write logs into files."""


@log.command(name="export")
@click.argument("context", required=False)
@click.option("--all", "everything", is_flag=True, help="All contexts.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="jsonl", show_default=True)
@click.option("--compress", type=click.Choice(COMPRESSIONS), default="zstd", show_default=True)
@click.option("--from", "begin", type=SeqOrInstant(), help="First event: a seq, or an instant (10m ago, or RFC 3339).")
@click.option("--to", "end", type=SeqOrInstant(), help="Last event: a seq, or the instant before which it lies.")
@click.option(
    "-o", "--out", "out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of the files."
)
@folder_option
def export_command(
    *,
    context: str | None,
    everything: bool,
    form: str,
    compress: str,
    begin: object,
    end: object,
    out: Path,
    folder: Path,
) -> None:
    """Write a log into files, checking its chain of digests on the way.

    JSON lines hold CloudEvents, as the event stream does; Parquet has a column for each part of an event. A context
    gets files of up to 500,000 events each and CONTEXT.manifest.json, which lists their contents, with the SHA-256 of
    each file and the digest of its last event.

    Run again, it checks what is there and goes on behind it: a job that runs each night keeps a log for good.
    """
    if bool(context) == everything:
        raise click.UsageError("give the CONTEXT to export, or --all")
    kind = Kind(form, compress)
    with log_of(folder) as postgres:
        found = asyncio.run(export_all(postgres, context, kind, begin, end, out))
    show_table(("context", "events", "from", "to", "new", "files", "bytes"), [_row(one) for one in found])


def _row(one: Exported) -> tuple[str, ...]:
    numbers = (one.rows, one.first, one.last, one.new, one.files, one.bytes)
    return (one.context, *(f"{number:,}" for number in numbers))
