"""`koord dev apply`, `patch` and `delete`: what kubectl is to a real cluster, for the simulated one."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from cli.bus_connection import ANSWER_S, bus_of, require_bus, require_simulator
from cli.dev.misspelt_fields import misspelt_fields
from cli.dev.simulated_kinds import resource_of_manifest, resources_named
from cli.silent_service import NoLeader, unless_silent
from cli.simulate.simulator_client import Object, SimulatedApi, SimulatorRefused
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.system_folder import find_endpoints
from cli.terminal.object_name import namespace_option
from cli.terminal.options import folder_option
from services.simulator.api.resource_kinds import NAMESPACES, NODES, Resource
from shared.bus import NoResponse
from shared.closest_name import did_you_mean
from shared.errors import KoordError
from shared.yaml_fault import yaml_fault

EXISTS, ABSENT = "AlreadyExists", "NotFound"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command
@click.argument("file", type=_FILE, required=False)
@click.option("-f", "--filename", type=_FILE, hidden=True, help="The same as FILE, as kubectl has it.")
@folder_option
def apply(*, file: Path | None, filename: Path | None, folder: Path) -> None:
    """Create the objects of a YAML FILE on the simulated cluster, or change those that exist; their status is written, too,
    since nobody else writes it there.
    """
    chosen = file or filename
    if chosen is None:
        raise click.UsageError("Missing argument 'FILE'.")
    bodies = list(_objects(chosen))
    if not bodies:
        raise KoordError(f"{chosen} has no objects")

    async def send(api: SimulatedApi) -> None:
        for body in bodies:
            try:
                verb = await _created_or_changed(api, body)
            except SimulatorRefused as error:
                raise KoordError(f"{_name(body)}: {error}{_missing_namespace(body, error)}") from error
            click.echo(f"{_name(body)} {verb}")

    _on_simulator(folder, send)


async def _created_or_changed(api: SimulatedApi, body: Object) -> str:
    """Creates or patches an object; returns what was done, and in which namespace."""
    before: Object = {}
    try:
        after = await api.create(body)
    except SimulatorRefused as error:
        if error.reason != EXISTS:
            raise
        before = await api.get(body)
        after = await api.patch(body, body)
    if "status" in body and (before or body.get("kind") != NODES.kind):  # a node's is kept as it is created
        after = await api.patch(body, {"status": body["status"]}, subresource="status")
    verb = "created" if not before else "unchanged" if _content(after) == _content(before) else "changed"
    namespace = after["metadata"].get("namespace", "")
    return f"{verb} in namespace {namespace}" if namespace else verb


def _content(body: Object) -> Object:
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    return body | {"metadata": metadata}


@click.command
@click.argument("kind")
@click.argument("name")
@click.argument("merge_patch", metavar="PATCH")
@namespace_option
@folder_option
def patch(*, kind: str, name: str, merge_patch: str, namespace: str, folder: Path) -> None:
    """Change an object of the simulated cluster by a JSON merge patch, such as '{"spec": {"unschedulable": false}}'; its
    status, too, since nobody else writes it there.
    """
    places = _places(kind, name, namespace)
    try:
        change = yaml.safe_load(merge_patch)
    except yaml.YAMLError as error:
        raise click.BadParameter(yaml_fault(error), param_hint="PATCH") from error
    if not isinstance(change, dict):
        raise click.BadParameter("give a JSON object", param_hint="PATCH")

    async def send(api: SimulatedApi) -> None:
        resource, place = await _existing(api, places)
        _refuse_misspelt([(resource, place, change)])
        try:
            before = await api.get(place)
            after = await api.patch(place, change)
            if "status" in change:
                after = await api.patch(place, {"status": change["status"]}, subresource="status")
        except SimulatorRefused as error:
            raise await _with_closest(api, place, error) from error
        click.echo(f"{_name(after)} {'unchanged' if _content(after) == _content(before) else 'changed'}")

    _on_simulator(folder, send)


@click.command
@click.argument("kind")
@click.argument("name")
@namespace_option
@folder_option
def delete(*, kind: str, name: str, namespace: str, folder: Path) -> None:
    """Delete an object of the simulated cluster."""
    places = _places(kind, name, namespace)

    async def send(api: SimulatedApi) -> None:
        _, place = await _existing(api, places)
        try:
            await api.delete(place)
        except SimulatorRefused as error:
            raise await _with_closest(api, place, error) from error
        click.echo(f"{_name(place)} deleted")

    _on_simulator(folder, send)


def _on_simulator(folder: Path, send: Callable[[SimulatedApi], Awaitable[None]]) -> None:
    async def run(endpoints: Endpoints) -> None:
        await require_simulator(endpoints)
        bus = bus_of(endpoints.nats, "koord dev")
        await bus.start()
        try:
            await require_bus(bus, "simulator")
            await unless_silent(send(SimulatedApi(bus, deadline_s=ANSWER_S)), "simulator", endpoints)
        except NoLeader as silent:
            raise KoordError(f"{silent}; what was sent may still be carried out when it responds again") from silent
        finally:
            await bus.close()

    try:
        asyncio.run(run(find_endpoints(folder)))
    except NoResponse as error:
        raise KoordError(
            "no simulator responds: it is part of `koord up` without --kubeconfig; a real cluster has kubectl"
        ) from error


def _objects(file: Path) -> Iterator[Object]:
    """Yields the objects of a file, once all of them are known to be well spelt."""
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = yaml_fault(error) if isinstance(error, yaml.YAMLError) else error
        raise KoordError(f"{file} cannot be read: {reason}") from error
    bodies = []
    for number, body in enumerate((each for each in documents if each is not None), 1):
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise KoordError(f"{file}: document {number} has no metadata.name")
        try:
            resource = resource_of_manifest(body.get("apiVersion"), body.get("kind"))
        except KoordError as error:
            raise KoordError(f"{_name(body)}: {error}") from error
        if resource.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        bodies.append((resource, body))
    _refuse_misspelt([(resource, body, body) for resource, body in bodies])
    yield from (body for _, body in bodies)


def _refuse_misspelt(found: Sequence[tuple[Resource, Object, Object]]) -> None:
    """Refuses fields that a kind does not have, as an API server does for kubectl; nothing of the file is sent.

    Args:
        found: resource, the object, and the fields of it that are written.
    """
    if faults := [
        f"{_name(body)}: {fault}" for kind, body, written in found for fault in misspelt_fields(kind.name, written)
    ]:
        raise KoordError("; ".join(faults))


def _places(kind: str, name: str, namespace: str) -> list[tuple[Resource, Object]]:
    """Returns where an object of this kind and name may be: two groups may have a kind of one name."""
    found = []
    for resource in resources_named(kind):
        within, slash, own = name.partition("/") if resource.namespaced else ("", "", name)
        metadata: dict[str, Any] = {"name": own if slash else name}
        if resource.namespaced:
            metadata["namespace"] = within if slash else namespace or "default"
        found.append((resource, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}))
    return found


async def _existing(api: SimulatedApi, places: list[tuple[Resource, Object]]) -> tuple[Resource, Object]:
    """Returns the first place that has the object; without one, the first, so that the answer is about it."""
    for resource, place in places if len(places) > 1 else ():
        try:
            await api.get(place)
        except SimulatorRefused as error:
            if error.reason != ABSENT:
                raise
        else:
            return resource, place
    return places[0]


async def _with_closest(api: SimulatedApi, place: Object, error: SimulatorRefused) -> KoordError:
    """Returns the error, with the object that was probably meant where there is none of this name."""
    if error.reason != ABSENT:
        return error
    metadata = place["metadata"]
    there = [each["metadata"] for each in await api.list(place["apiVersion"], place["kind"])]
    return KoordError(f"{error}{did_you_mean(_place_name(metadata), map(_place_name, there))}")


def _place_name(metadata: Mapping[str, str]) -> str:
    namespace = metadata.get("namespace", "")
    return f"{namespace}/{metadata['name']}" if namespace else metadata["name"]


def _missing_namespace(body: Object, error: SimulatorRefused) -> str:
    """Returns what to do where a new object's namespace is absent."""
    name = body["metadata"].get("namespace", "")
    if error.reason != ABSENT or not str(error).startswith(f'{NAMESPACES.name} "{name}"'):
        return ""
    manifest = f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
    return f"; create it: put a document `{manifest}` before this one"


def _name(body: Object) -> str:
    return f"{str(body.get('kind', 'object')).lower()}/{body.get('metadata', {}).get('name', '')}"
