"""The two sides of a transport: an agent's outbox and keeper, and ingest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cli.embedded import EmbeddedNats
from services.node_agent.states_informer.node_slo import SloKeeper
from services.node_agent.transport.mqtt_transport import OverMqtt
from services.node_agent.transport.nats_transport import OverNats
from services.node_agent.transport.outbox import Message, Outbox
from services.node_agent.transport.transport import Carrier
from shared.agents import receipt, subjects
from shared.agents.broker import Broker
from shared.agents.receipt import Answer
from shared.agents.subjects import DEED, REPORT, SLO
from shared.bus import Bus
from shared.bus.streams import StreamConfig
from shared.tasks import end

NODE = "ip-10-0-0-1.internal"

STREAM = StreamConfig(
    name=subjects.SLO_STREAM, subjects=(subjects.every_subject(SLO),), max_msgs_per_subject=1, allow_direct=True
)


class Side:
    """An agent's outbox and keeper, with the carrier of one transport."""

    def __init__(self, transport: str, server: EmbeddedNats, folder: Path) -> None:
        self.outbox = Outbox(1_000_000)
        self.keeper = SloKeeper(NODE, folder / "state")
        self.carrier: Carrier = (
            OverNats(NODE, Bus(server.url, name="agent"), self.outbox, self.keeper)
            if transport == "nats"
            else OverMqtt(NODE, Broker.parse(server.mqtt_url), self.outbox, self.keeper)
        )

    def put(self, kind: str, *seqs: int) -> None:
        for seq in seqs:
            self.outbox.put(Message(kind, seq, b"%d" % seq))

    @asynccontextmanager
    async def carrying(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.carrier.run())
        try:
            yield
        finally:
            await end(task)
            await self.carrier.close()


class Ingest:
    """The other side: notes what comes on this node's subjects, and answers questions."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.heard: dict[str, list[int]] = {REPORT: [], DEED: []}
        self.refuses: dict[int, str] = {}

    async def listen(self, transport: str) -> None:
        for kind in self.heard:
            if transport == "nats":
                await self.bus.answer(subjects.subject(NODE, kind), self._answering(kind))
            else:  # the server maps topics to subjects
                await self.bus.hear(subjects.subject(NODE, kind), self._hearing(kind))

    def _answering(self, kind: str) -> Callable[[bytes], "asyncio.Future[bytes]"]:
        async def respond(data: bytes) -> bytes:
            seq = int(data)
            self.heard[kind].append(seq)
            return receipt.encode(Answer("report", "boot", seq, self.refuses.get(seq, "")))

        return lambda data: asyncio.ensure_future(respond(data))

    def _hearing(self, kind: str) -> Callable[[bytes], None]:
        return lambda data: self.heard[kind].append(int(data))
