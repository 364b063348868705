"""Configurations: of each context that takes one, what is in force and what was rejected."""

from collections.abc import Sequence

from msgspec import Struct

from cli.commands.active_config import Refused, Taken, status_of, text_of
from cli.kinds.kind import Column, Kind, get_command
from cli.terminal import name_completion
from shared.kube.instants import SECOND, instant_text
from shared.log.admin.session import opened


class Config(Struct, frozen=True):
    """The configuration of a context; `text` is that in force."""

    name: str
    in_force: Taken | None
    refused: Refused | None
    text: str


async def read(postgres: str) -> Sequence[Config]:
    """Reads the configurations of all contexts that have any."""
    async with opened(postgres) as database:
        return [
            Config(
                one.context,
                one.in_force,
                one.refused,
                await text_of(database, one.context) if one.in_force is not None else "",
            )
            for one in await status_of(database)
            if one.in_force is not None or one.refused is not None
        ]


def _since(item: Config) -> str:
    return "-" if item.in_force is None else instant_text(item.in_force.since_ns // SECOND * SECOND)


def _in_force(item: Config) -> str:
    """Returns the source of the configuration in force, and whether parts of it have no effect."""
    if item.in_force is None:
        return "none"
    parts = (" (in part)" if item.in_force.without_effect else "") + (" (deleted)" if item.in_force.deletion else "")
    return item.in_force.name + parts


def _rejected(item: Config) -> str:
    """Returns the rejected configuration and the reason; one that was corrected since only with `-o wide`."""
    no = item.refused
    if no is None:
        return ""
    return f"{no.source} at {instant_text(no.at_ns // SECOND * SECOND)}: {'; '.join(no.faults)}"


KIND = Kind(
    "config",
    "configs",
    read,
    (
        Column("context", lambda item: item.name),
        Column("in force", _in_force),
        Column("digest", lambda item: item.in_force.digest[:12] if item.in_force else "-"),
        Column("event", lambda item: f"{item.name}/{item.in_force.seq}" if item.in_force else "-", is_wide=True),
        Column("since", _since),
        Column("without effect", lambda item: "; ".join(item.in_force.without_effect) if item.in_force else ""),
        Column("rejected", lambda item: _rejected(item) if item.refused and item.refused.stands else ""),
        Column(
            "rejected earlier",
            lambda item: "" if item.refused is None or item.refused.stands else _rejected(item),
            is_wide=True,
        ),
    ),
    complete=name_completion.contexts,
)

get = get_command(KIND, "Show the configuration in force of each context, and the rejected one with its reason.")
