"""`koord quota`: tree, explain, why, verify, whatif."""

import asyncio
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from cli.quota import live_tree, render
from cli.quota.recorded_accounts import Accounts, accounts, verified, weigh_their_max
from cli.supervisor.log_access import log_of
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table
from cli.terminal.time_arguments import Since
from services.quota_ledger.explain.explain_pod import explain_pod
from services.quota_ledger.explain.explain_runtime import explain as explain_quota
from services.quota_ledger.explain.quota_overview import overview
from services.quota_ledger.explain.what_if import changed_runtimes
from shared.errors import KoordError
from shared.kube.quantity import amount, nanos

_CHANGE = re.compile(r"(?P<quota>[^=]+)\.(?P<field>min|max|weight)\.(?P<resource>[^=]+)=(?P<amount>[^=]+)")

COMPUTED = "No ledger has written to this log; these are the numbers it would record."

at_option = click.option("--at", type=Since(), default=None, help="As of an instant, or an age such as 10m.")


@click.group()
def quota() -> None:
    """Show quotas, what they lend and borrow, and the arithmetic behind it."""


@quota.command()
@at_option
@click.option("--watch", is_flag=True, help="Show it again every two seconds until interrupted.")
@output_option
@folder_option
def tree(*, at: datetime | None, watch: bool, output: Format, folder: Path) -> None:
    """Show every quota: min, max, runtime, used, borrowed, lent, and what waits."""
    if watch:
        live_tree.watch(lambda: overview(_accounts(folder, at).projection), output)
        return
    found = overview(_accounts(folder, at).projection)
    if output != "table":
        show(found, output)
    elif sys.stdout.isatty():
        live_tree.draw(found)
    else:
        show_table(render.COLUMNS, render.rows(found), right=render.AMOUNTS)


@quota.command()
@click.argument("name")
@at_option
@output_option
@folder_option
def explain(*, name: str, at: datetime | None, output: Format, folder: Path) -> None:
    """Write out how a quota came to its runtime, and which pods hold it."""
    found = explain_quota(_accounts(folder, at).projection, name)
    if output == "table":
        click.echo(render.explained(found), nl=False)
    else:
        show(found, output)


@quota.command()
@click.argument("pod", metavar="NAMESPACE/NAME")
@click.option("--parents", is_flag=True, help="Compare every ancestor too, as enableCheckParentQuota does.")
@at_option
@output_option
@folder_option
def why(*, pod: str, parents: bool, at: datetime | None, output: Format, folder: Path) -> None:
    """Say which quota a pod is short of, who holds it, and who borrows it."""
    found_accounts = _accounts(folder, at)
    projection = found_accounts.projection
    full = pod if "/" in pod else f"default/{pod}"
    uid = next((uid for uid in sorted(projection.pods) if projection.pods.name(uid) == full), None)
    if uid is None:
        raise KoordError(f"no quota knows a pod {full}; it has ended, or belongs to none")
    rules = found_accounts.settings.admission()
    found = explain_pod(projection, uid, replace(rules, parents=True) if parents else rules)
    if output == "table":
        click.echo(render.why_pod(found), nl=False)
    else:
        show(found, output)


@quota.command()
@output_option
@folder_option
@click.pass_context
def verify(ctx: click.Context, *, output: Format, folder: Path) -> None:
    """Add up the whole ledger: debits are credits after every event, and every runtime follows from the requests.

    Exits with 1 when something does not hold, and names the event.
    """
    with log_of(folder) as postgres:
        report, is_computed = asyncio.run(verified(postgres))
    if is_computed:
        click.echo(COMPUTED, err=True)
    if output == "table":
        click.echo(
            f"{report.events} events to seq {report.seq}: {'balanced' if not report.findings else 'NOT balanced'}"
        )
        for finding in report.findings:
            click.echo(f"  quota/{finding.seq} {finding.event} {finding.rule}: {finding.what}")
    else:
        findings = [finding._asdict() for finding in report.findings]
        show({"events": report.events, "seq": report.seq, "findings": findings}, output)
    if report.findings:
        ctx.exit(1)


@quota.command(name="whatif")
@click.option(
    "--set", "changes", multiple=True, required=True, metavar="NAME.max.cpu=AMOUNT", help="Of min, max, weight."
)
@at_option
@output_option
@folder_option
def what_if(*, changes: tuple[str, ...], at: datetime | None, output: Format, folder: Path) -> None:
    """Show whose runtime another min, max or weight would change."""
    requested = parsed(changes)
    with log_of(folder) as postgres:
        projection = _noted(asyncio.run(accounts(postgres, at))).projection
        unweighted = asyncio.run(weigh_their_max(postgres, projection, requested, at))
    found = changed_runtimes(projection, requested, unweighted)
    if output == "table":
        if not found:
            click.echo("No runtime would change.")
            return
        columns = ("quota", "resource", "now", "then", "change")
        show_table(columns, render.changes(found), right=columns[2:])
    else:
        show(found, output)


def parsed(changes: tuple[str, ...]) -> dict[str, Any]:
    """`a.max.cpu=4` -> {"a": {"max": {"cpu": 4000}}}.

    Raises:
        KoordError: one is not of that form.
    """
    found: dict[str, Any] = {}
    for text in changes:
        match = _CHANGE.fullmatch(text)
        if match is None:
            raise KoordError(f"{text!r} is no change; give NAME.min.RESOURCE=AMOUNT, or max or weight")
        size = amount(match["resource"], nanos(match["amount"]))
        found.setdefault(match["quota"], {}).setdefault(match["field"], {})[match["resource"]] = size
    return found


def _accounts(folder: Path, at: datetime | None) -> Accounts:
    with log_of(folder) as postgres:
        return _noted(asyncio.run(accounts(postgres, at)))


def _noted(found: Accounts) -> Accounts:
    if found.is_computed:
        click.echo(COMPUTED, err=True)
    return found
