"""`koord audit`: is the log what was written?"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from cli.supervisor.log_access import log_of
from cli.terminal.choice import chosen_contexts
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from cli.terminal.progress import progress
from shared.errors import KoordError
from shared.log.admin.session import reading
from shared.log.admin.verify import Verified, verify
from shared.log.checkpoint import Checkpoint, read_checkpoints, read_statement
from shared.log.position import Position
from shared.log.raw_rows import first_kept
from shared.log.reader import LogReader

Heads = Mapping[str, Sequence[Position]]
"""Context -> its heads, as checkpoints recorded them."""


class LogBroken(KoordError):
    """A log does not fit its own chain of digests, or what a checkpoint saw."""


@click.group(cls=Group)
def audit() -> None:
    """Prove that the log is what was written."""


@audit.command(name="verify")
@click.option("--log", "context", metavar="LOG", help="Only this log; all of them otherwise.")
@click.option(
    "--checkpoint",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Signed heads that were kept elsewhere: one JSON object, or one a line. May be repeated.",
)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The public key (PEM) that must have signed them; without it, whichever key they name.",
)
@output_option
@folder_option
def verify_command(
    *, context: str | None, files: tuple[Path, ...], key: Path | None, output: Format, folder: Path
) -> None:
    """Check each log against its chain of digests, and against checkpoints.

    An altered, removed, added or reordered event is named, and the exit code is 1. A log that was cut short at its end,
    or written anew with all its digests, still fits its chain; give a checkpoint that was kept elsewhere to notice
    that.
    """
    if key and not files:
        raise click.UsageError("--key says who must have signed a --checkpoint; give one")
    heads = heads_of(files, key)
    with log_of(folder) as postgres:
        found = asyncio.run(verify_all(postgres, context, heads))
    if output == "table":
        columns = ["context", "events", "oldest", "fits"]
        rows = [[one.context, f"{one.checked:,}", one.first, _fits(one)] for one in found]
        if files:
            columns.insert(3, "checkpoints")
            for row, one in zip(rows, found, strict=True):
                row.insert(3, f"{one.compared:,}" + (f", {one.dropped:,} too old" if one.dropped else ""))
        show_table(columns, rows)
    else:
        show([{**one._asdict(), "ok": one.ok} for one in found], output)
    if broken := [one for one in found if not one.ok]:
        raise LogBroken("; ".join(f"{one.context}/{one.broken} {one.reason}" for one in broken))


@audit.command()
@click.option(
    "--out",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("audit.key"),
    show_default=True,
    help="The private key's file, for KOORD_AUDIT_KEY; the public key is written beside it as .pub.",
)
def keygen(file: Path) -> None:
    """Make the key that signs checkpoints.

    The private key (mode 0600) is for the audit service alone. Give the public key to those who verify checkpoints.
    """
    from services.audit.checkpoint_signing import generate, public_file

    try:
        signer = generate(file)
    except FileExistsError:
        raise KoordError(f"{file} is there already; another key would not verify what that one has signed") from None
    click.echo(f"key {signer.id}: private {file} (KOORD_AUDIT_KEY), public {public_file(file)}", err=True)
    click.echo(public_file(file).read_text(), nl=False)


def heads_of(files: Sequence[Path], key: Path | None) -> Heads:
    """The heads that the checkpoints in these files saw.

    Raises:
        BadCheckpoint: one is not genuine; names the file.
    """
    from services.audit.checkpoint_signing import check, load_public

    trusted = load_public(key) if key else None
    heads: dict[str, list[Position]] = {}
    for file in files:
        for checkpoint in _read(file):
            try:
                check(checkpoint, trusted)
            except KoordError as error:
                raise KoordError(f"{file}: {error}") from error
            for context, head in read_statement(checkpoint.statement).heads.items():
                heads.setdefault(context, []).append(head)
    return heads


def _read(file: Path) -> list[Checkpoint]:
    try:
        return read_checkpoints(file.read_bytes())
    except KoordError as error:
        raise KoordError(f"{file}: {error}") from error


async def verify_all(postgres: str, context: str | None = None, heads: Heads | None = None) -> list[Verified]:
    """Checks one context, or all.

    Raises:
        KoordError: there is no such context.
    """
    signed = heads or {}
    async with reading(postgres) as log:
        contexts = await log.contexts()
        chosen = chosen_contexts(contexts, context)
        events = sum([await _kept(log, name) for name in chosen])
        with progress("verifying the log", events) as advance:
            found = [await verify(log, name, signed.get(name, ()), advance) for name in chosen]
    gone = [] if context else sorted(signed.keys() - set(contexts))
    return found + [Verified(name, 0, 0, 1, "is missing: a checkpoint saw this log, and it is gone") for name in gone]


async def _kept(log: LogReader, context: str) -> int:
    """Returns the number of a context's events."""
    return (await log.head(context)).seq - max(await first_kept(log.database, context) - 1, 0)


def _fits(one: Verified) -> str:
    return "yes" if one.ok else f"no: {one.broken} {one.reason}"
