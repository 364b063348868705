"""Gangs: the pods of each against its minimum."""

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from cli.kinds.kind import Column, Kind, get_command
from cli.scheduling.recorded_state import scheduler_state
from services.scheduler.explain.gang_status import GangStatus, gang_status
from services.scheduler.explain.waiting_order_config import rules_in_force
from shared.log.admin.session import reading


class GangListed(msgspec.Struct, frozen=True):
    """A gang.

    Attributes:
        state: `satisfied`, `waiting`, `incomplete` or `unknown`.
        lacks: why it is not tried; empty where it is.
    """

    namespace: str
    name: str
    state: str
    minimum: int
    exists: int
    bound: int
    placed: int
    pending: int
    lacks: str


async def read(postgres: str) -> Sequence[GangListed]:
    """Reads all gangs, by name."""
    async with reading(postgres) as log:
        view = await scheduler_state(log)
    rules = rules_in_force(view)
    found = (gang_status(view, rules, name) for name in sorted(view.gangs.gangs))
    return [_listed(status) for status in found if status is not None]


def _listed(status: GangStatus) -> GangListed:
    namespace, _, name = status.name.partition("/")
    return GangListed(
        namespace,
        name,
        status.state,
        status.settings.minimum if status.settings else 0,
        len(status.members),
        status.count("bound"),
        status.count("placed"),
        status.count("pending"),
        status.lacks,
    )


KIND = Kind(
    "gang",
    "gangs",
    read,
    (
        Column("name", attrgetter("name")),
        Column("state", attrgetter("state")),
        *(
            Column(each, attrgetter(each), is_right=True)
            for each in ("minimum", "exists", "bound", "placed", "pending")
        ),
        Column("lacks", lambda item: item.lacks or "-", is_wide=True),
    ),
    is_namespaced=True,
)

get = get_command(KIND, "List gangs: the pods of each, bound, placed and pending, against its minimum.")
