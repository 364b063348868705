"""Quotas: each in each resource, as a tree."""

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from cli.kinds.kind import Column, Kind, get_command
from cli.quota import live_tree, render
from cli.quota.recorded_accounts import COMPUTED, accounts
from cli.terminal import name_completion
from cli.terminal.output import show_lines, show_text
from cli.terminal.time_arguments import at_option
from services.quota_ledger.explain.quota_overview import OverviewRow, overview
from shared.errors import KoordError


class QuotaWithoutAccount(KoordError):
    """The quota has no amounts: its object is rejected, and never was valid."""


async def read(postgres: str, at: datetime | None = None, name: str | None = None) -> Sequence[OverviewRow]:
    """Reads all quotas, as of the log's head or of an instant, and names the faults of the objects, or of one
    alone.

    Raises:
        QuotaWithoutAccount: that one is rejected, and never was valid.
    """
    found = await accounts(postgres, at)
    if found.is_computed:
        show_text(COMPUTED, err=True)
    rows = overview(found.projection)
    faults = (*render.rejected(found.projection), *render.ignored(found.projection))
    lines = [fault.text for fault in faults if name in (None, fault.name)]
    if name is not None and lines and all(row.quota != name for row in rows):
        raise QuotaWithoutAccount("; ".join(lines))
    show_lines(lines, err=True)
    return rows


def _joined(rows: Sequence[OverviewRow]) -> dict[str, object]:
    """Returns the rows of one quota as one object, its amounts by resource."""
    own = {field: getattr(rows[0], field) for field in ("quota", "tree", "parent", "depth")}
    return {**own, "resources": {row.resource: {each: getattr(row, each) for each in render.AMOUNTS} for row in rows}}


def _amount(field: str) -> Callable[[Any], str]:
    return lambda row: render.amount(row.resource, getattr(row, field))


KIND = Kind(
    "quota",
    "quotas",
    read,
    (
        Column("quota", render.name),
        Column("resource", attrgetter("resource")),
        *(Column(field, _amount(field), is_right=True) for field in render.AMOUNTS),
        Column("parent", attrgetter("parent"), is_wide=True),
        Column("tree", lambda row: row.tree or "default", is_wide=True),
    ),
    name_of=attrgetter("quota"),
    options=(at_option,),
    draw=live_tree.draw,
    join=_joined,
    watch=live_tree.watch,
    reads_name=True,
    complete=name_completion.quotas,
)

get = get_command(KIND, "Show each quota in each resource: min, max, runtime, used, borrowed, lent, waiting.")
