"""Responses of the leading gateway to `koord cluster` and `koord doctor`: short lists, outages, and confirmations."""

import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from services.gateway.watch.observation_buffer import ObservationBuffer
from shared.bus import Bus
from shared.events import Draft
from shared.events.cluster import ShortListConfirmed
from shared.kube.json_text import read_json
from shared.kube.short_lists import CONFIRM, SHORT_LISTS, Confirmation, GatewayLists, ShortList, Unread
from shared.rejected_messages import RejectionRecord
from shared.unreachable import Unreachable

log = logging.getLogger(__name__)

_ENCODE = msgspec.json.Encoder().encode


class ListRequests:
    """Responder of one gateway, from when it leads."""

    def __init__(
        self,
        observations: ObservationBuffer,
        append: Callable[[Draft], None],
        rejections: RejectionRecord,
        find_unreachable: Callable[[], Awaitable[tuple[Unreachable, ...]]],
    ) -> None:
        """Prepares the responses.

        Args:
            append: receives each confirmation, to be appended to the log.
            find_unreachable: asks the API server for an answer, and returns the outages.
        """
        self._rejections = rejections
        self._observations = observations
        self._append = append
        self._find_unreachable = find_unreachable

    async def serve(self, bus: Bus) -> None:
        """Responds until the bus is closed. Only a replica that leads has lists, so a standby does not respond."""
        await bus.respond(SHORT_LISTS, self._describe)
        await bus.respond(CONFIRM, self._confirm)

    async def _describe(self, _request: bytes) -> bytes:
        unreachable = await self._find_unreachable()
        return self._response(self._observations.short_lists.show(), unreachable)

    async def _confirm(self, request: bytes) -> bytes:
        try:
            requested = read_json(request, Confirmation).lists
        except msgspec.DecodeError as error:
            log.warning("a confirmation cannot be read", extra={"error": str(error)})
            self._rejections.add(CONFIRM, str(error))
            requested = {}
        confirm = self._observations.short_lists.confirm
        confirmed = [found for item in requested.items() if (found := confirm(*item)) is not None]
        for found in confirmed:
            event = ShortListConfirmed(resource=found.resource, known=found.known, missing=found.missing)
            self._append(Draft(event))
        return self._response(confirmed)

    def _response(self, short: Sequence[ShortList], unreachable: tuple[Unreachable, ...] = ()) -> bytes:
        unread = tuple(
            Unread(outage.resource, outage.lasts_s, outage.reason) for outage in self._observations.outages.current()
        )
        return _ENCODE(GatewayLists(tuple(short), unread, unreachable))
