"""Reports and actions as requests over NATS: the reply comes after the commit, so an accepted message is in the log."""

import asyncio
import contextlib
import logging

import msgspec

from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from services.node_agent.transport.outbox import Message, Outbox
from services.node_agent.transport.transport_interface import POLL_INTERVAL_S, Backoff, until_one_ends
from shared.agents import receipt, subjects
from shared.agents.subjects import ACTION, INVENTORY, REPORT
from shared.bus import Bus
from shared.errors import KoordError

log = logging.getLogger(__name__)

ECHO_INTERVAL_S = 5.0
"""Seconds between pings. A fleet's pings load the server, and an agent has time to notice a half-open connection."""
ANSWER_WITHIN_S = 5.0
CONNECTION_SEEN_INTERVAL_S = 2.0


class NatsTransport:
    """Exchanges one node's messages over the bus. Each kind of message keeps its order and waits for no other.

    Attributes:
        accepted: kind -> the last message had a reply.
    """

    def __init__(
        self, node: str, bus: Bus, outbox: Outbox, slo_informer: NodeSloInformer, pods: NodePodsInformer | None = None
    ) -> None:
        self.accepted = {REPORT: True, ACTION: True, INVENTORY: True}
        self._node = node
        self._bus = bus
        self._outbox = outbox
        self._slo_informer = slo_informer
        self._pods = pods

    @property
    def connected(self) -> bool:
        """Reports whether the server is connected and some kind of message was answered last."""
        return self._bus.connected and any(self.accepted[kind] for kind in (ACTION, REPORT))

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._bus.subscribe(subjects.subject(self._node, subjects.SLO), self._receive_slo)
        if self._pods is not None:
            await self._bus.subscribe(subjects.subject(self._node, subjects.PODS), self._receive_pods)
        await self._bus.start()
        await until_one_ends(self._follow_slo(), *(self._send(kind) for kind in (ACTION, INVENTORY, REPORT)))

    async def close(self) -> None:
        """Sends the pending messages, then closes the connection."""
        await self._bus.close()

    async def _send(self, kind: str) -> None:
        backoff = Backoff()
        while True:
            message = await self._outbox.next(kind)
            refused = await self._request(message)
            if refused is None:
                await backoff.wait()
                continue
            backoff.reset()
            self._outbox.done(message, refused)

    async def _request(self, message: Message) -> str | None:
        """Returns the reason of a rejection, None without a reply; empty when the message is in the log, and for an
        inventory that waits: inventories are repeated in any case.
        """
        subject = subjects.subject(self._node, message.kind)
        try:
            reply = receipt.decode(await self._bus.request(subject, message.data, deadline_s=ANSWER_WITHIN_S))
        except (KoordError, msgspec.DecodeError) as error:  # no responder, or this login may not publish there
            if self.accepted[message.kind]:
                log.warning(
                    f"{message.kind} messages are not accepted; they are kept",
                    extra={"why": str(error), "waiting": len(self._outbox)},
                )
            self.accepted[message.kind] = False
            return None
        if not self.accepted[message.kind]:
            log.info(f"{message.kind} messages are accepted again", extra={"waiting": len(self._outbox)})
        self.accepted[message.kind] = True
        return reply.refused

    def _receive_slo(self, data: bytes) -> None:
        self._slo_informer.receive(data)

    def _receive_pods(self, data: bytes) -> None:
        if self._pods is not None:
            self._pods.receive(data)

    async def _follow_slo(self) -> None:
        # A NodeSLO published while the connection was down is not delivered again, so each new connection requests it.
        loop, polled_s, connections = asyncio.get_running_loop(), -POLL_INTERVAL_S, -1
        while True:
            due = loop.time() - polled_s >= POLL_INTERVAL_S or self._bus.reconnects != connections
            if self._bus.connected and due:
                polled_s, connections = loop.time(), self._bus.reconnects
                with contextlib.suppress(KoordError):  # there is no stream yet
                    if last := await self._bus.request(subjects.slo_question(self._node), b"", deadline_s=1):
                        self._receive_slo(last)
            await asyncio.sleep(CONNECTION_SEEN_INTERVAL_S)
