"""A client of the simulated cluster: what kubectl is to a real one, over the bus."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shared.bus import Bus
from shared.errors import KoordError

SUBJECT = "koord.simulator"
DEADLINE_S = 30.0

Object = dict[str, Any]


class SimulatorRefused(KoordError):
    """The simulated API rejected a request.

    Attributes:
        code: as an HTTP status.
        reason: the API's word for it, such as `NotFound`.
    """

    def __init__(self, status: Mapping[str, Any]) -> None:
        super().__init__(str(status.get("message", "")))
        self.code = int(status.get("code", 500))
        self.reason = str(status.get("reason", ""))


class SimulatedApi:
    """Creates, changes and reads objects. Every call returns once what it changed is in the log.

    Args:
        deadline_s: seconds that a call waits for its response.
    """

    def __init__(self, bus: Bus, *, deadline_s: float = DEADLINE_S) -> None:
        self._bus = bus
        self._deadline_s = deadline_s

    async def create(self, body: Mapping[str, Any]) -> Object:
        """Creates an object; returned as stored.

        Raises:
            SimulatorRefused: with the code and the field.
            NoResponse: no simulator leads.
        """
        return await self._send("create", body)

    async def create_all(self, bodies: Sequence[Mapping[str, Any]]) -> list[Object]:
        """Creates up to 2,000 objects in one request; their metadata, or a Status, in the same order."""
        items: list[Object] = (await self._send("create", {"kind": "List", "items": list(bodies)}))["items"]
        return items

    async def patch(self, place: Mapping[str, Any], patch: Mapping[str, Any], *, subresource: str = "") -> Object:
        """Applies a JSON merge patch.

        Args:
            place: apiVersion, kind and metadata with the name, and the namespace if there is one.
            patch: what changes.
            subresource: `status`, or empty for the object itself.

        Raises:
            SimulatorRefused: with the code and the field.
        """
        return await self._send("patch", {**place, "patch": patch, "subresource": subresource})

    async def delete(self, place: Mapping[str, Any], *, grace_s: int | None = None) -> Object:
        """Deletes an object.

        Raises:
            SimulatorRefused: with the code.
        """
        return await self._send("delete", {**place, "gracePeriodSeconds": grace_s})

    async def delete_all(self, places: Sequence[Mapping[str, Any]]) -> list[Object]:
        """Deletes up to 2,000 objects in one request; their metadata, or a Status, in the same order."""
        items: list[Object] = (await self._send("delete", {"kind": "List", "items": list(places)}))["items"]
        return items

    async def get(self, place: Mapping[str, Any]) -> Object:
        """Reads an object.

        Raises:
            SimulatorRefused: 404 when there is none.
        """
        return await self._send("get", place)

    async def list(self, api_version: str, kind: str, namespace: str = "") -> list[Object]:
        """Reads all objects of a kind, by key."""
        items: list[Object] = []
        after = ""
        while True:
            page = await self._send(
                "list", {"apiVersion": api_version, "kind": kind, "namespace": namespace, "continue": after}
            )
            items += page["items"]
            after = page["metadata"].get("continue", "")
            if not after:
                return items

    async def _send(self, verb: str, body: Mapping[str, Any]) -> Object:
        data = await self._bus.request(f"{SUBJECT}.{verb}", msgspec.json.encode(body), deadline_s=self._deadline_s)
        answer: Object = msgspec.json.decode(data, type=dict[str, Any])
        if answer.get("kind") == "Status" and answer.get("status") == "Failure":
            raise SimulatorRefused(answer)
        return answer
