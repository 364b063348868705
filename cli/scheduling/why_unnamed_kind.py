"""`koord why NAME`: the kind is found in the log: pod, gang, Reservation or device of this name."""

import asyncio
from pathlib import Path
from typing import Any

import click

from cli.devices.why_device import device_name
from cli.scheduling.recorded_state import scheduler_state
from cli.supervisor.gateway_trouble import warn_of_trouble
from cli.supervisor.log_access import log_of
from cli.system_contexts.chosen_system import servers_in_environment
from cli.terminal import name_completion
from cli.terminal.object_name import full_name, namespace_option
from cli.terminal.options import folder_option, output_option
from cli.terminal.output import Format
from services.scheduler.state.watched_api_resources import RESERVATIONS
from shared.errors import KoordError
from shared.events.cluster import PodObserved
from shared.log.admin.session import reading


class NoSuchName(KoordError):
    """Nothing that can be explained has this name."""


@click.command
@click.argument("name", shell_complete=name_completion.pods)
@namespace_option
@output_option
@folder_option
@click.pass_context
def why_any(ctx: click.Context, *, name: str, namespace: str | None, output: Format, folder: Path) -> None:
    """Explain the pod, gang, Reservation or device of this name."""
    group = ctx.parent.command if ctx.parent else None
    assert isinstance(group, click.Group), "a verb has kinds"
    warn_of_trouble(folder)  # here, where the system is still known by its folder
    # A log whose Postgres was started for this command stays open for that of the kind.
    with log_of(folder) as postgres, servers_in_environment({"KOORD_POSTGRES": postgres}):
        kind, full = asyncio.run(_kind_of(postgres, name, namespace))
        command = group.get_command(ctx, kind)
        assert command is not None, "a kind of the verb"
        options: dict[str, Any] = {"name": full, "output": output, "folder": folder}
        if kind == "device":
            options["since"] = None
        elif kind != "reservation":
            options["namespace"] = full.partition("/")[0]  # a namespace may have the name of a kind
        ctx.invoke(command, **options)


async def _kind_of(postgres: str, name: str, namespace: str | None) -> tuple[str, str]:
    """Returns the kind of a name, and the name with its namespace.

    Raises:
        NoSuchName: the log has none of them.
    """
    if device_name(name) is not None:
        return "device", name
    full = full_name(name, namespace)
    async with reading(postgres) as log:
        if "cluster" in await log.contexts():
            async for _ in log.rows(context="cluster", kind=PodObserved.__name__, key=full, newest=1):
                return "pod", full
        view = await scheduler_state(log)
    if full in view.gangs.gangs:
        return "gang", full
    if "/" not in name and name in view.objects.get(RESERVATIONS, {}):
        return "reservation", name
    raise NoSuchName(
        f"the log has no pod, gang or Reservation {name!r}{'' if full == name else f' (looked for {full})'}; `koord "
        "pending -A` lists what waits, `koord get pods -A` the pods there are"
    )
