"""The verbs for quotas: explain, verify, whatif; `koord get quotas` is in `cli/kinds/quotas.py`."""

import asyncio
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from cli.quota import render
from cli.quota.recorded_accounts import (
    COMPUTED,
    Accounts,
    accounts,
    accounts_in,
    observed_pod,
    verified,
    weigh_their_max,
)
from cli.supervisor.log_access import log_of
from cli.terminal import name_completion
from cli.terminal.object_name import cluster_name, namespaced_name
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_lines, show_table, show_text
from cli.terminal.time_arguments import at_option
from services.quota_ledger.explain.explain_runtime import explain as explain_quota
from services.quota_ledger.explain.quota_shortfall_of_pod import explain_pod
from services.quota_ledger.explain.what_if_quota_change import changed_runtimes
from shared.errors import KoordError
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.pod import Pod
from shared.kube.quantity import amount, nanos
from shared.log.admin.session import reading

_CHANGE = re.compile(r"(?P<quota>[^=]+)\.(?P<field>min|max|weight)\.(?P<resource>[^=]+)=(?P<amount>[^=]+)")


@click.command
@cluster_name(name_completion.quotas)
@at_option
@output_option
@folder_option
def explain(*, name: str, at: datetime | None, output: Format, folder: Path) -> None:
    """Write out the computation of a quota's runtime, and its pods.

    Also the objects of its name that are rejected, and its annotations that are ignored.
    """
    projection = _accounts(folder, at).projection
    found = explain_quota(projection, name)
    if output == "table":
        show_lines(render.explained(found).splitlines())
    else:
        show(found, output)
    show_lines(render.notes_about(projection, name), err=output != "table")


@click.command
@namespaced_name
@click.option("--parents", is_flag=True, help="Compare every ancestor too, as enableCheckParentQuota does.")
@at_option
@output_option
@folder_option
def explain_standing(*, name: str, parents: bool, at: datetime | None, output: Format, folder: Path) -> None:
    """Show the quota that a pod is short of, and its users.

    Also which quotas borrow beside it.
    """
    with log_of(folder) as postgres:
        found_accounts, pod = asyncio.run(_accounts_and_pod(postgres, name, at))
    projection = _noted(found_accounts).projection
    if pod is None:
        raise KoordError(f"there is no pod {name!r}; `koord get pods -A` shows those there are")
    uid = pod.metadata.uid
    if uid not in projection.pods:
        raise KoordError(f"no quota counts pod {name}; it has ended, or belongs to none")
    rules = found_accounts.settings.admission()
    label = (pod.metadata.labels or {}).get(QUOTA_NAME, "")
    found = explain_pod(projection, uid, replace(rules, parents=True) if parents else rules, label)
    if output == "table":
        show_lines(render.why_pod(found).splitlines())
    else:
        show(found, output)


@click.command
@output_option
@folder_option
@click.pass_context
def verify(ctx: click.Context, *, output: Format, folder: Path) -> None:
    """Add up the whole ledger of quotas, event by event.

    Debits are credits after every event, and every runtime follows from the requests. Exits with 1 when
    something does not hold, and names the event.
    """
    with log_of(folder) as postgres:
        report, is_computed = asyncio.run(verified(postgres))
    if is_computed:
        show_text(COMPUTED, err=True)
    if output == "table":
        click.echo(
            f"{report.events} events to seq {report.seq}: {'balanced' if not report.findings else 'NOT balanced'}"
        )
        for finding in report.findings:
            show_text(f"  quota/{finding.seq} {finding.event} {finding.rule}: {finding.what}")
    else:
        findings = [finding._asdict() for finding in report.findings]
        show({"events": report.events, "seq": report.seq, "findings": findings}, output)
    if report.findings:
        ctx.exit(1)


@click.command
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


async def _accounts_and_pod(postgres: str, name: str, at: datetime | None) -> tuple[Accounts, Pod | None]:
    async with reading(postgres) as log:
        return await accounts_in(log, at), await observed_pod(log, name, at)


def _accounts(folder: Path, at: datetime | None) -> Accounts:
    with log_of(folder) as postgres:
        return _noted(asyncio.run(accounts(postgres, at)))


def _noted(found: Accounts) -> Accounts:
    if found.is_computed:
        show_text(COMPUTED, err=True)
    return found
