"""`koord events parked` and `koord events skip`: events that stopped a service, and the decision to pass over one."""

import asyncio
import getpass
from pathlib import Path

import click

from cli.service_list import SERVICES
from cli.supervisor.log_access import log_of
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from shared.errors import KoordError
from shared.events import Cause
from shared.log.admin.followers import Parked, Skipped, list_parked, list_skips
from shared.log.admin.session import opened
from shared.log.service_store import ServiceStore


class Event(click.ParamType[Cause]):
    """An event by its place in the log: CONTEXT/SEQ."""

    name = "context/seq"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Cause:
        """The context and the seq."""
        try:
            found = Cause.parse(str(value))
        except ValueError:
            found = Cause("", 0)
        if not found.context or found.seq < 1:
            self.fail(f"{value!r} is no event; give CONTEXT/SEQ, such as cluster/412", param, ctx)
        return found


@click.command()
@output_option
@folder_option
def parked(*, output: Format, folder: Path) -> None:
    """Show events that stopped a service, and those that are passed over."""
    with log_of(folder) as postgres:
        stopping, passed = asyncio.run(_parked(postgres))
    if output != "table":
        show({"parked": [one._asdict() for one in stopping], "skipped": [one._asdict() for one in passed]}, output)
        return
    rows = [("parked", one.service, f"{one.context}/{one.seq}", one.error) for one in stopping]
    rows += [("skipped", one.service, f"{one.context}/{one.seq}", f"{one.reason} ({one.by})") for one in passed]
    if rows:
        show_table(("state", "service", "event", "why"), rows)
    else:
        click.echo("No event is parked or skipped.", err=True)


@click.command()
@click.argument("service", type=click.Choice(SERVICES))
@click.argument("event", type=Event())
@click.option("--reason", required=True, help="Why it may be passed over; kept with the decision.")
@click.option("--by", default=getpass.getuser, show_default="you", help="Who decides.")
@folder_option
def skip(*, service: str, event: Cause, reason: str, by: str, folder: Path) -> None:
    """Let SERVICE pass over the event CONTEXT/SEQ, which it cannot read, from its next start on.

    Its state is then a function of the log without that event; a replay passes over it too. There is no way back, so
    only a parked event is skipped.
    """
    asyncio.run(_skip(find_endpoints(folder).postgres, service, event, reason, by))
    click.echo(f"{service} passes over {event.context}/{event.seq} from its next start on.")


async def _parked(postgres: str) -> tuple[list[Parked], list[Skipped]]:
    async with opened(postgres) as database:
        return await list_parked(database), await list_skips(database)


async def _skip(postgres: str, service: str, event: Cause, reason: str, by: str) -> None:
    async with opened(postgres) as database:
        known = [(one.service, one.context, one.seq) for one in await list_parked(database)]
        if (service, event.context, event.seq) not in known:
            raise KoordError(
                f"{service} has not parked {event.context}/{event.seq}; `koord events parked` shows the events that can "
                "be skipped"
            )
        await ServiceStore(database, service).skip(event.context, event.seq, reason=reason, by=by)
