"""`koord cluster`: lists of objects that the gateway does not believe, and their confirmation."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from cli.bus_connection import request_leading, require_gateway
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.durations import age
from cli.terminal.lazy_group import Group
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table, show_text
from shared.errors import KoordError
from shared.first_names import first_names
from shared.kube.instants import SECOND, instant_text
from shared.kube.short_lists import (
    CLUSTER_IDENTITY,
    CONFIRM,
    NAMED,
    SHORT_LISTS,
    Confirmation,
    GatewayLists,
    ShortList,
    Unread,
)
from shared.unreachable import Unreachable


@click.group(cls=Group)
def cluster() -> None:
    """Show and confirm lists that the gateway does not believe."""


@cluster.command()
@output_option
@folder_option
def status(*, output: Format, folder: Path) -> None:
    """Show the lists that lack many nodes, pods or quotas of the log, and resources that cannot be read."""
    found = asyncio.run(_found(find_endpoints(folder)))
    if output != "table":
        show(msgspec.to_builtins(found), output)
        return
    for server in found.unreachable:
        show_text(f"the gateway leads, but {_silence(server)}")
    if not found.short and not found.unread and not found.unreachable:
        click.echo("all lists are believed, and all resources are read")
    for short in found.short:
        show_text(_describe(short))
    if unread := unread_resources(found):
        show_table(("resource", "not read for", "why"), unread_rows(unread))


@cluster.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@folder_option
def confirm(*, yes: bool, folder: Path) -> None:
    """Confirm that the missing objects are gone: they are recorded as deleted, and effects go on.

    The confirmation is recorded in the log (ShortListConfirmed).
    """
    endpoints = find_endpoints(folder)
    found = asyncio.run(_found(endpoints))
    for short in found.short:
        show_text(_describe(short), err=True)
    seen = Confirmation({short.resource: short.lists for short in found.short if short.repeated})
    if not seen.lists:
        raise KoordError(
            "the list is being repeated: try again in some seconds" if found.short else "no list waits for this"
        )
    if not yes and not _is_confirmed():
        raise KoordError(
            "nothing was confirmed: the missing objects are not recorded as deleted, and effects stay stopped; "
            "answer y if they are gone, or give --yes"
        )
    confirmed = asyncio.run(request_lists(endpoints, CONFIRM, msgspec.json.encode(seen))).short
    for short in confirmed:
        show_text(
            f"confirmed: {short.missing} of {short.known} {short.resource} are gone; effects go on after the next list, "
            "within seconds"
        )
    if changed := sorted(seen.lists.keys() - {short.resource for short in confirmed}):
        raise KoordError(
            f"the list of {', '.join(changed)} changed meanwhile: nothing of it was confirmed; see `koord cluster status`"
        )


def _is_confirmed() -> bool:
    """Asks; without a terminal or a line to read the answer is no."""
    try:
        return click.confirm("Are these objects gone from the cluster?", err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo(err=True)
        return False


def unread_resources(found: GatewayLists) -> list[Unread]:
    """Returns the resources that are not read, without the request for the cluster's identity where the API server is
    named as one that does not answer.
    """
    return [one for one in found.unread if one.resource != CLUSTER_IDENTITY or not found.unreachable]


def unread_rows(unread: Sequence[Unread]) -> Iterator[tuple[str, str, str]]:
    """Yields a row for each cause: an API server that is away is one cause for all resources. Where they are not read for
    different times, it has the shortest and the longest.
    """
    by_cause: dict[str, list[Unread]] = {}
    for one in unread:
        by_cause.setdefault(one.cause, []).append(one)
    for cause, together in by_cause.items():
        names = first_names([one.resource for one in together], NAMED)
        shortest, longest = (age(of(one.lasts_s for one in together)) for of in (min, max))
        yield names, longest if shortest == longest else f"{shortest} to {longest}", cause


async def _found(endpoints: Endpoints) -> GatewayLists:
    await require_gateway(endpoints)
    return await request_lists(endpoints, SHORT_LISTS)


async def request_lists(endpoints: Endpoints, subject: str, payload: bytes = b"") -> GatewayLists:
    """Sends a request to the gateway that leads.

    Raises:
        KoordError: none responds.
    """
    found = await request_leading(endpoints, "koord cluster", "gateway", subject, payload)
    return msgspec.json.decode(found, type=GatewayLists)


def _silence(server: Unreachable) -> str:
    """Returns the line about a server that does not answer: its name, the duration and the reason."""
    lasts_s = (time.time_ns() - server.since_ns) / SECOND
    since = instant_text(server.since_ns // SECOND * SECOND)
    return f"cannot use {server.server} for {age(lasts_s)}, since {since}: {server.reason}"


def _describe(short: ShortList) -> str:
    return f"{short}; {short.stopped}; {short.remedy}"
