"""Finds what this system has left in a cluster, and removes it, with the rights of the given kubeconfig."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from services.gateway.kube_api.api_errors import ApiError, Conflict, NotFound
from services.gateway.kube_api.client import MANAGER, MERGE, KubeApi
from services.gateway.kube_api.raw_object_requests import get_object
from services.gateway.kube_api.resources import PODS, RESOURCES, Resource
from services.gateway.settings import GatewaySettings
from services.gateway.uninstall.field_ownership import Raw
from services.gateway.uninstall.leftover_removal_decision import Leftover, Search, leftover, quotas_in_use, searches
from shared.kube.elastic_quota import PREFIX
from shared.kube.resource_names import GUIDE_QUOTAS, QUOTAS

PAGE = 500
CONCURRENCY = 16
TRIES = 5
"""Reads and removals of one object while others write it."""

GATEWAY = "/apis/apps/v1/namespaces/{}/deployments/koordstream-gateway"


class Removal(NamedTuple):
    """The outcome of one removal.

    Attributes:
        failure: the reason why it is still there; empty if it is not.
    """

    leftover: Leftover
    failure: str = ""


async def deployed_replicas(api: KubeApi, settings: GatewaySettings) -> int:
    """Returns the number of gateways that the cluster itself is to run.

    Raises:
        ApiError: the Deployment cannot be read.
    """
    path = GATEWAY.format(settings.webhook_namespace)
    found = await get_object(api, path, "get deployments.apps")
    return int(found["spec"].get("replicas", 1)) if found else 0


async def find_leftovers(api: KubeApi, settings: GatewaySettings) -> list[Leftover]:
    """Returns all objects that this system has made or written, in the order of removal.

    Raises:
        ApiError: a resource cannot be read.
    """
    in_use = quotas_in_use(
        [body for name in (QUOTAS, GUIDE_QUOTAS) async for body in _objects(api, RESOURCES[name])],
        [body async for body in _objects(api, PODS, f"labelSelector={PREFIX.replace('/', '%2F')}name")],
    )
    secret = f"{settings.webhook_namespace}/{settings.webhook_certificates}"
    examined = [leftover(search, body, in_use) for search in searches(secret) async for body in _searched(api, search)]
    return [one for one in examined if one is not None]


async def remove_leftovers(api: KubeApi, found: Sequence[Leftover]) -> list[Removal]:
    """Removes what is not to be kept: one resource after the other, many objects of one at once."""
    limit = asyncio.Semaphore(CONCURRENCY)

    async def remove(one: Leftover) -> Removal:
        async with limit:
            try:
                return Removal(one, await _remove(api, one))
            except ApiError as error:
                return Removal(one, str(error))

    removals: list[Removal] = []
    for _, group in groupby((one for one in found if one.action != "keep"), lambda one: one.search.resource.name):
        removals += await asyncio.gather(*map(remove, group))
    return removals


async def _remove(api: KubeApi, one: Leftover) -> str:
    """Removes one object or its fields, as often as others write it meanwhile; returns why it is still there."""
    current: Leftover | None = one
    for _ in range(TRIES):
        if current is None or current.action != one.action:
            break
        try:
            await (_delete(api, current) if current.action == "delete" else _remove_fields(api, current))
        except NotFound:
            return ""
        except Conflict:
            changed = await get_object(api, one.path, f"get {one.search.resource.name}")
            current = leftover(one.search, changed, {}) if changed else None
        else:
            return ""
    return "" if current is None else "other clients have changed it meanwhile: run the command again"


async def _delete(api: KubeApi, one: Leftover) -> None:
    metadata = one.body["metadata"]
    preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    rule = f"delete {one.search.resource.name}"
    await api.call("DELETE", one.path, rule, body | {"preconditions": preconditions})


async def _remove_fields(api: KubeApi, one: Leftover) -> None:
    version, rule = one.body["metadata"]["resourceVersion"], f"patch {one.search.resource.name}"
    for subresource, patch in one.patches.items():
        path = f"{one.path}/{subresource}" if subresource else one.path
        body = patch | {"metadata": patch.get("metadata", {}) | {"resourceVersion": version}}
        # A list that is written in full becomes its writer's: under a name of its own, it is not found again.
        data = await api.call("PATCH", f"{path}?fieldManager={MANAGER}-uninstall", rule, body, MERGE)
        version = msgspec.json.decode(data)["metadata"]["resourceVersion"]


async def _searched(api: KubeApi, search: Search) -> AsyncIterator[Raw]:
    if search.key:
        found = await get_object(api, search.resource.path(search.key), f"get {search.resource.name}")
        if found:
            yield found
        return
    async for body in _objects(api, search.resource, search.query):
        yield body


async def _objects(api: KubeApi, resource: Resource, query: str = "") -> AsyncIterator[Raw]:
    """Yields the objects of a resource as plain JSON; none of one that is not installed."""
    parts: Iterable[str] = filter(None, (query, f"limit={PAGE}"))
    path, token = f"{resource.collection()}?{'&'.join(parts)}", ""
    while True:
        try:
            data = await api.call("GET", f"{path}&continue={token}" if token else path, f"list {resource.name}")
        except NotFound:
            return
        page = msgspec.json.decode(data)
        for body in page.get("items") or ():
            yield body
        token = page["metadata"].get("continue", "")
        if not token:
            return
