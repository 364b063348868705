"""`koord dev apply`, `patch` and `delete`: what kubectl is to a real cluster, for the simulated one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from cli.bus_connection import ANSWER_S, bus_of
from cli.simulate.simulator_client import Object, SimulatedApi, SimulatorRefused
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.object_name import namespace_option
from cli.terminal.options import folder_option
from services.simulator.api.resource_kinds import RESOURCES, Resource
from shared.bus import NoResponse
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.yaml_fault import yaml_fault

EXISTS = "AlreadyExists"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command
@click.argument("file", type=_FILE, required=False)
@click.option("-f", "--filename", type=_FILE, hidden=True, help="The same as FILE, as kubectl has it.")
@folder_option
def apply(*, file: Path | None, filename: Path | None, folder: Path) -> None:
    """Create the objects of a YAML FILE on the simulated cluster, or change those that exist."""
    chosen = file or filename
    if chosen is None:
        raise click.UsageError("Missing argument 'FILE'.")
    bodies = list(_objects(chosen))

    async def send(api: SimulatedApi) -> None:
        for body in bodies:
            try:
                made, verb = await api.create(body), "created"
            except SimulatorRefused as error:
                if error.reason != EXISTS:
                    raise KoordError(f"{_name(body)}: {error}") from error
                made, verb = await api.patch(body, body), "changed"
            click.echo(f"{_name(made)} {verb}")

    _on_simulator(folder, send)


@click.command
@click.argument("kind")
@click.argument("name")
@click.argument("merge_patch", metavar="PATCH")
@namespace_option
@folder_option
def patch(*, kind: str, name: str, merge_patch: str, namespace: str, folder: Path) -> None:
    """Change an object of the simulated cluster by a JSON merge patch, such as '{"spec": {"unschedulable": false}}'."""
    place = _place(kind, name, namespace)
    try:
        change = yaml.safe_load(merge_patch)
    except yaml.YAMLError as error:
        raise click.BadParameter(yaml_fault(error), param_hint="PATCH") from error
    if not isinstance(change, dict):
        raise click.BadParameter("give a JSON object", param_hint="PATCH")

    async def send(api: SimulatedApi) -> None:
        click.echo(f"{_name(await api.patch(place, change))} changed")

    _on_simulator(folder, send)


@click.command
@click.argument("kind")
@click.argument("name")
@namespace_option
@folder_option
def delete(*, kind: str, name: str, namespace: str, folder: Path) -> None:
    """Delete an object of the simulated cluster."""
    place = _place(kind, name, namespace)

    async def send(api: SimulatedApi) -> None:
        await api.delete(place)
        click.echo(f"{_name(place)} deleted")

    _on_simulator(folder, send)


def _on_simulator(folder: Path, send: Callable[[SimulatedApi], Awaitable[None]]) -> None:
    async def run(url: str) -> None:
        bus = bus_of(url, "koord dev")
        await bus.start()
        try:
            await send(SimulatedApi(bus, deadline_s=ANSWER_S))
        finally:
            await bus.close()

    try:
        asyncio.run(run(find_endpoints(folder).nats))
    except NoResponse as error:
        raise KoordError(
            "no simulator responds: it is part of `koord up` without --kubeconfig; a real cluster has kubectl"
        ) from error


def _objects(file: Path) -> Iterator[Object]:
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = yaml_fault(error) if isinstance(error, yaml.YAMLError) else error
        raise KoordError(f"{file} cannot be read: {reason}") from error
    for number, body in enumerate((each for each in documents if each is not None), 1):
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise KoordError(f"{file}: document {number} has no metadata.name")
        resource = _resource(str(body.get("kind", "")))
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        yield body


def _place(kind: str, name: str, namespace: str) -> Object:
    resource = _resource(kind)
    namespace = namespace or "default"
    if resource.namespaced and "/" in name:
        namespace, _, name = name.partition("/")
    metadata: dict[str, Any] = {"name": name} | ({"namespace": namespace} if resource.namespaced else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _resource(kind: str) -> Resource:
    """Returns a kind by its name, in any case, or by its plural."""
    names = {name: each for each in RESOURCES for name in (each.kind.lower(), each.name.partition(".")[0])}
    if (found := names.get(kind.lower())) is None:
        known = ", ".join(each.kind for each in RESOURCES)
        raise KoordError(
            f"the simulated cluster has no kind {kind!r}{did_you_mean(kind.lower(), names)}; there are {known}"
        )
    return found


def _name(body: Object) -> str:
    return f"{str(body.get('kind', 'object')).lower()}/{body.get('metadata', {}).get('name', '')}"
