"""`koord uninstall`: what the system has left in a cluster, and its removal."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import click

from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format, show, show_table, show_text
from services.gateway.kube_api.api_errors import ApiError, Forbidden, Unanswered
from services.gateway.kube_api.authenticated_connections import NoCluster
from services.gateway.kube_api.client import KubeApi
from services.gateway.needed_rbac_rules import LEASE_NAME
from services.gateway.settings import GatewaySettings
from services.gateway.uninstall.leftover_removal_decision import Action, Leftover
from services.gateway.uninstall.live_lease_holder import lease_holder, live_lease_holder
from services.gateway.uninstall.removal import Removal, deployed_replicas, find_leftovers, remove_leftovers
from shared.errors import KoordError

DONE: dict[Action, str] = {"delete": "deleted", "remove fields": "fields removed", "keep": "kept"}


class GatewayRuns(KoordError):
    """A gateway of the cluster runs, which would write everything back."""


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Of an administrator of the cluster to clean up.",
)
@click.option("--yes", is_flag=True, help="Remove it; without this, nothing is written.")
@output_option
@folder_option
def uninstall(*, kubeconfig: Path, yes: bool, output: Format, folder: Path) -> None:
    """Remove the objects and fields that this system wrote into a cluster; without --yes only show them.

    An object is deleted if this system wrote every field of it; of one that others wrote, too, only this system's
    fields are removed. Stop the system first. What you have applied yourself stays: `kubectl delete -k k8s/base`.
    """
    try:
        asyncio.run(_uninstall(str(kubeconfig.absolute()), folder, yes=yes, output=output))
    except NoCluster as error:
        raise KoordError(str(error)) from error
    except Forbidden as error:
        raise KoordError(f"{error}; give the kubeconfig of an administrator") from error
    except Unanswered as error:
        raise KoordError(
            f"the API server of {kubeconfig} cannot be reached: {error.reason}; run it again when it responds"
        ) from error
    except ApiError as error:
        works = f"`kubectl --kubeconfig {kubeconfig} get namespace kube-system`"
        raise KoordError(f"{error}; see that this works, and run it again: {works}") from error


async def _uninstall(kubeconfig: str, folder: Path, *, yes: bool, output: Format) -> None:
    settings = GatewaySettings.load("gateway", os.environ)
    async with KubeApi(kubeconfig, timeout_s=settings.timeout_s, read_only=not yes) as api:
        runs = await _running_gateway(api, settings, folder) or await _lease_holder(api, settings, waits=yes)
        if yes and runs:
            raise GatewayRuns(runs)
        found = await find_leftovers(api, settings)
        if not yes:
            _print([(one, one.action, one.detail) for one in found], output)
            _summarize(found, output)
            if runs:
                show_text(f"This may change yet, and --yes is refused while a gateway runs: {runs}", err=True)
            return
        removals = await remove_leftovers(api, found)
        kept = [(one, DONE["keep"], one.detail) for one in found if one.action == "keep"]
        _print([*map(_outcome, removals), *kept], output)
        _expect_removed(removals, await find_leftovers(api, settings))
    if output == "table":
        show_text(f"{api.server}: nothing of this system is left" + (", but what was kept" if kept else ""))
        show_text("What you applied yourself is still there: kubectl delete -k k8s/base (or the overlay)")


async def _running_gateway(api: KubeApi, settings: GatewaySettings, folder: Path) -> str:
    """Returns which gateway still writes to the cluster, and how to end it; empty where none is known."""
    from cli.supervisor.cluster_record import recorded_clusters
    from cli.supervisor.system_folder import find_running

    uid = await api.cluster_uid()
    clusters = recorded_clusters(folder)
    for system in find_running(folder):
        if (record := clusters.get(system)) and record.cluster == uid:
            return f"`koord up` runs for this cluster, in {system}: end it first, or it writes all of it again"
    if replicas := await deployed_replicas(api, settings):
        namespace = settings.webhook_namespace
        return (
            f"the Deployment {namespace}/koordstream-gateway has {replicas} replicas, which write all of it again: first "
            f"kubectl -n {namespace} scale deployment koordstream-gateway --replicas=0"
        )
    return ""


async def _lease_holder(api: KubeApi, settings: GatewaySettings, *, waits: bool) -> str:
    """Returns the system that holds the Lease of the cluster, on any machine; empty where none does.

    Args:
        waits: waits for a renewal, and returns nothing without one: the holder was killed.
    """
    lease = f"the Lease {settings.webhook_namespace}/{LEASE_NAME}"

    def announce(holder: str, lasts_s: float) -> None:
        what = f"{_system(holder)} holds {lease}; waiting up to {lasts_s:g} s to see whether it still renews it"
        click.echo(what, err=True)

    if waits:
        holder = await live_lease_holder(api, settings, announce)
        end = "end it where it was started, or it writes all of it again"
        return f"{_system(holder)} runs, since it renews {lease}: {end}" if holder else ""
    holder = await lease_holder(api, settings)
    return f"{_system(holder)} holds {lease}, and --yes waits to see whether it still renews it" if holder else ""


def _system(holder: str) -> str:
    log_id, _, replica = holder.partition("/")
    return f"the system with log {log_id}, {replica},"


def _outcome(removal: Removal) -> tuple[Leftover, str, str]:
    one = removal.leftover
    return (one, "failed", removal.failure) if removal.failure else (one, DONE[one.action], one.detail)


def _print(rows: Sequence[tuple[Leftover, str, str]], output: Format) -> None:
    columns = ("resource", "name", "action", "detail")
    lines = [(one.search.resource.name, one.key, action, detail) for one, action, detail in rows]
    if output != "table":
        show([dict(zip(columns, line, strict=True)) for line in lines], output)
    elif lines:
        show_table(columns, lines)


def _summarize(found: Sequence[Leftover], output: Format) -> None:
    if output != "table":
        return
    if changes := sum(one.action != "keep" for one in found):
        click.echo(f"{changes} objects to change; nothing was written. Add --yes to do it.")
    else:
        click.echo("nothing to remove")


def _expect_removed(removals: Sequence[Removal], left: Sequence[Leftover]) -> None:
    """Raises an error for what is still there, or there again."""
    if failed := sum(bool(removal.failure) for removal in removals):
        raise KoordError(f"{failed} objects could not be removed, for the reasons above; correct them and run it again")
    if back := [f"{one.search.resource.name} {one.key}" for one in left if one.action != "keep"]:
        raise KoordError(
            f"{len(back)} objects were written again, such as {back[0]}: a gateway still runs for this cluster; stop it, "
            "and run this again"
        )
