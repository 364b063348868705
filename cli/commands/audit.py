"""`koord audit`: is the log what was written?"""

import asyncio
from pathlib import Path

import click

from cli.options import folder_option, output_option
from cli.output import Format, show, show_table
from cli.supervisor.folder import find_endpoints
from shared.errors import KoordError
from shared.log.session import reading
from shared.log.verify import Verified, verify


class LogBroken(KoordError):
    """A log does not fit its own chain of digests."""


@click.group()
def audit() -> None:
    """Prove that the log is what was written."""


@audit.command(name="verify")
@click.option("--context", help="Only this context's log; all of them otherwise.")
@output_option
@folder_option
def verify_command(*, context: str | None, output: Format, folder: Path) -> None:
    """Check each log against its chain of digests.

    An altered, removed, added or reordered event is named, and the exit code is 1. A log that was cut short at its end
    still fits its chain; a checkpoint kept elsewhere is what shows that.
    """
    found = asyncio.run(verify_all(find_endpoints(folder).postgres, context))
    if output == "table":
        rows = [
            (one.context, f"{one.checked:,}", one.first, "yes" if one.ok else f"no: {one.broken} {one.reason}")
            for one in found
        ]
        show_table(("context", "events", "oldest", "fits"), rows)
    else:
        show([{**one._asdict(), "ok": one.ok} for one in found], output)
    if broken := [one for one in found if not one.ok]:
        raise LogBroken("; ".join(f"{one.context}/{one.broken} {one.reason}" for one in broken))


async def verify_all(postgres: str, context: str | None = None) -> list[Verified]:
    """Check one context, or all.

    Raises:
        KoordError: there is no such context.
    """
    async with reading(postgres) as log:
        contexts = await log.contexts()
        if context and context not in contexts:
            raise KoordError(f"there is no context {context!r}; there are {', '.join(contexts)}")
        return [await verify(log, name) for name in ([context] if context else contexts)]
