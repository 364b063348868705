"""Requests of an operator about evictions: a hold or a release is recorded before it is confirmed."""

import logging
from collections.abc import Callable

import msgspec

from services.gateway.effects.eviction_budget import recent
from services.gateway.settings import GatewaySettings
from services.gateway.state import GatewayState
from shared.bus import Request
from shared.events import Draft
from shared.events.cluster import EvictionsHeld, EvictionsReleased
from shared.kube.eviction_control import EvictionCommand, EvictionStatus, PausedEviction
from shared.kube.json_text import read_json
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

LISTED = 100
"""Paused evictions in a response, the oldest first."""


class EvictionControl:
    """Answers requests while this replica writes `cluster`."""

    def __init__(self, runtime: Runtime, append: Callable[[Draft], None]) -> None:
        self._runtime = runtime
        self._append = append
        self._waiting: list[tuple[Request, int]] = []  # with `switched_seq` when it arrived

    async def receive(self, message: Request) -> None:
        """Answers a request for the status; records a hold or release, which `answer_recorded` confirms."""
        try:
            command = read_json(message.data, EvictionCommand)
        except msgspec.DecodeError as error:
            log.warning("a request about evictions cannot be read", extra={"error": str(error)})
            self._runtime.rejections.add(message.subject, str(error))
            return
        state: GatewayState = self._runtime.state
        if command.verb == "status":
            await message.respond(self._status())
            return
        kind = EvictionsHeld if command.verb == "hold" else EvictionsReleased
        self._waiting.append((message, state.evictions.switched_seq))
        self._append(Draft(kind(by=command.by, reason=command.reason)))

    async def answer_recorded(self) -> None:
        """Answers the requests whose event is folded."""
        state: GatewayState = self._runtime.state
        ready = [message for message, seq in self._waiting if state.evictions.switched_seq > seq]
        self._waiting = [each for each in self._waiting if state.evictions.switched_seq <= each[1]]
        for message in ready:
            await message.respond(self._status())

    def _status(self) -> bytes:
        state: GatewayState = self._runtime.state
        settings: GatewaySettings = self._runtime.settings
        record, hold = state.evictions, state.evictions.hold
        waiting = sorted(record.paused.items(), key=lambda item: item[1].seq)
        one_shots = state.intents.one_shots
        return msgspec.json.encode(
            EvictionStatus(
                held_by=hold.by if hold else "",
                held_reason=hold.reason if hold else "",
                held_since_ns=hold.since_ns if hold else 0,
                evicted=len(recent(record, settings.eviction_window_s, self._runtime.now_ns())),
                limit=settings.evictions_per_cluster,
                window_s=settings.eviction_window_s,
                waiting=len(waiting),
                paused=tuple(
                    PausedEviction(str(cause), one_shots[cause].pod if cause in one_shots else "", each.reason)
                    for cause, each in waiting[:LISTED]
                ),
            )
        )
