"""Responses of the leading gateway to `koord cluster` and `koord doctor`: short lists, outages, and confirmations."""

from collections.abc import Callable, Sequence

import msgspec

from services.gateway.watch.observation_buffer import ObservationBuffer
from shared.bus import Bus
from shared.events import Draft
from shared.events.cluster import ShortListConfirmed
from shared.kube.short_lists import CONFIRM, SHORT_LISTS, GatewayLists, ShortList, Unread

_ENCODE = msgspec.json.Encoder().encode


class ListRequests:
    """Responder of one gateway, from when it leads."""

    def __init__(self, observations: ObservationBuffer, append: Callable[[Draft], None]) -> None:
        """Prepares the responses; `append` receives each confirmation, to be appended to the log."""
        self._observations = observations
        self._append = append

    async def serve(self, bus: Bus) -> None:
        """Responds until the bus is closed. Only a replica that leads has lists, so a standby does not respond."""
        await bus.respond(SHORT_LISTS, self._describe)
        await bus.respond(CONFIRM, self._confirm)

    async def _describe(self, _request: bytes) -> bytes:
        return self._response(list(self._observations.short_lists.held.values()))

    async def _confirm(self, _request: bytes) -> bytes:
        confirmed = self._observations.short_lists.confirm()
        for found in confirmed:
            event = ShortListConfirmed(resource=found.resource, known=found.known, missing=len(found.missing))
            self._append(Draft(event))
        return self._response(confirmed)

    def _response(self, short: Sequence[ShortList]) -> bytes:
        unread = tuple(
            Unread(outage.resource, outage.lasts_s, outage.reason) for outage in self._observations.outages.current()
        )
        return _ENCODE(GatewayLists(tuple(short), unread))
