"""`koord describe quota`: what the log has about a quota."""

from cli.describe.describe_command import describe_command
from cli.describe.description import Description, Table, Value
from cli.describe.last_events import last_events
from cli.quota import render
from cli.quota.recorded_accounts import COMPUTED, accounts_in
from cli.terminal import name_completion
from cli.terminal.amounts import human_amount, human_amounts
from services.quota_ledger.accounting.ledger_projection import LedgerProjection
from services.quota_ledger.explain.quota_overview import overview
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.log.reader import LogReader

MOST_PODS = 30
_AMOUNTS = ("min", "max", "runtime", "used", "borrowed", "lent", "waiting")


async def describe(log: LogReader, name: str) -> Description:
    """Describes a quota.

    Raises:
        KoordError: the ledger has no quota of this name.
    """
    accounts = await accounts_in(log)
    projection = accounts.projection
    if name not in projection.tree_of and name not in projection.rejected:
        hint = did_you_mean(name, (*projection.tree_of, *projection.rejected))
        raise KoordError(f"the ledger has no quota {name!r}{hint}; `koord get quotas` shows those there are")
    found: dict[str, Value] = {"Name": name, "State": _state(projection, name)}
    if accounts.is_computed:
        found["Note"] = COMPUTED
    if name in projection.tree_of:
        info = projection.trees[projection.tree_of[name]].quotas[name]
        declared = info.declared
        found |= {
            "Object": f"{declared.namespace}/{declared.name}" if declared.namespace else "",
            "UID": declared.uid,
            "Parent": declared.parent,
            "Tree": projection.tree_of[name],
            "Children": ", ".join(sorted(info.children)),
            "Lends": "true" if declared.lends else "false",
            "Weight": human_amounts(declared.weight or declared.max),
        }
        rows = [row for row in overview(projection) if row.quota == name]
        cells = [(row.resource, *(human_amount(row.resource, getattr(row, each)) for each in _AMOUNTS)) for row in rows]
        found["Resources"] = Table(("resource", *_AMOUNTS), cells, right=_AMOUNTS)
        found["Pods"] = _pods(projection, name)
    if notes := list(render.notes_about(projection, name)):
        found["Notes"] = notes
    return {**found, "Events": await last_events(log, name, ("quota",))}


def _state(projection: LedgerProjection, name: str) -> str:
    if name not in projection.rejected:
        return "in force"
    return "rejected; its last valid declaration is in force" if name in projection.tree_of else "rejected"


def _pods(projection: LedgerProjection, name: str) -> Table:
    """Returns its own pods, those that use it first."""
    uids = sorted(
        projection.pods_of(name), key=lambda uid: (not projection.pods[uid].charged, projection.pods.name(uid))
    )
    rows = [
        (projection.pods.name(uid), "uses" if projection.pods[uid].charged else "waits for",
         human_amounts(projection.pods[uid].request))
        for uid in uids[:MOST_PODS]
    ]  # fmt: skip
    if len(uids) > MOST_PODS:
        rows.append((f"and {len(uids) - MOST_PODS} more", "", ""))
    return Table(("name", "state", "amounts"), rows)


command = describe_command(
    describe,
    "Show a quota: min, max, runtime and use in each resource, its pods, and its last events.",
    complete=name_completion.quotas,
)
