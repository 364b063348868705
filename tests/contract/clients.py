"""The two clients: of the simulator over the bus, and of a kube-apiserver."""

import asyncio

from cli.dev.fake_nodes import create_nodes, delete_nodes, node_object
from cli.dev.kube_client import Api, ApiRefused
from cli.simulate.simulator_client import SimulatedApi, SimulatorRefused
from tests.contract.scenario import ClientRefused, Object

PLURALS = {
    "Pod": "pods",
    "Node": "nodes",
    "ConfigMap": "configmaps",
    "NodeMetric": "nodemetrics",
    "Reservation": "reservations",
    "NodeSLO": "nodeslos",
    "PriorityClass": "priorityclasses",
}


class SimulatorClient:
    """Client of the simulator, over `koord.simulator.*`."""

    def __init__(self, api: SimulatedApi) -> None:
        self._api = api

    async def create(self, body: Object) -> Object:
        try:
            return await self._api.create(body)
        except SimulatorRefused as error:
            raise ClientRefused(error.code, str(error)) from error

    async def patch(self, reference: Object, patch: Object, subresource: str = "") -> Object:
        try:
            return await self._api.patch(reference, patch, subresource=subresource)
        except SimulatorRefused as error:
            raise ClientRefused(error.code, str(error)) from error

    async def delete(self, reference: Object) -> None:
        try:
            await self._api.delete(reference, grace_s=0)
        except SimulatorRefused as error:
            raise ClientRefused(error.code, str(error)) from error

    async def get(self, reference: Object) -> Object:
        try:
            return await self._api.get(reference)
        except SimulatorRefused as error:
            raise ClientRefused(error.code, str(error)) from error

    async def create_node(self, name: str) -> Object:
        return await self.create(node_object(name))


class KubeClient:
    """Client of a kube-apiserver, as the administrator."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes: list[str] = []

    async def create(self, body: Object) -> Object:
        return await self._call("POST", _path(body, collection=True), body)

    async def patch(self, reference: Object, patch: Object, subresource: str = "") -> Object:
        path = _path(reference) + (f"/{subresource}" if subresource else "")
        return await self._call("PATCH", path, patch)

    async def delete(self, reference: Object) -> None:
        uid = reference["metadata"].get("uid")
        options = {"gracePeriodSeconds": 0} | ({"preconditions": {"uid": uid}} if uid else {})
        await self._call("DELETE", _path(reference), options)

    async def get(self, reference: Object) -> Object:
        return await self._call("GET", _path(reference))

    async def create_node(self, name: str) -> Object:
        self._nodes += await asyncio.to_thread(create_nodes, self._api, [node_object(name)])
        return await self.get({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    async def remove_nodes(self) -> None:
        """Deletes the nodes that it has created: other tests of the cluster count nodes."""
        await asyncio.to_thread(delete_nodes, self._api, self._nodes)
        self._nodes.clear()

    async def _call(self, method: str, path: str, body: Object | None = None) -> Object:
        try:
            return await asyncio.to_thread(self._api.call, method, path, body)
        except ApiRefused as error:
            raise ClientRefused(error.status, str(error)) from error


def _path(body: Object, *, collection: bool = False) -> str:
    version, metadata = body["apiVersion"], body["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    within = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{root}{within}/{PLURALS[body['kind']]}" + ("" if collection else f"/{metadata['name']}")
