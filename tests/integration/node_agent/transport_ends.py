"""Both ends of a transport: an agent's outbox and informer, and ingest."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cli.embedded import EmbeddedNats
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.transport.mqtt_transport import MqttTransport
from services.node_agent.transport.nats_transport import NatsTransport
from services.node_agent.transport.outbox import Message, Outbox
from services.node_agent.transport.transport_interface import Transport
from shared.agents import receipt, subjects
from shared.agents.broker import Broker
from shared.agents.receipt import Receipt
from shared.agents.subjects import ACTION, REPORT, SLO
from shared.bus import Bus
from shared.bus.jetstream import StreamConfig
from shared.runtime.task_cancellation import cancel_and_wait

NODE = "ip-10-0-0-1.internal"

STREAM = StreamConfig(
    name=subjects.SLO_STREAM, subjects=(subjects.every_subject(SLO),), max_msgs_per_subject=1, allow_direct=True
)


class AgentEnd:
    """An agent's outbox and informer, with one transport."""

    def __init__(self, transport: str, server: EmbeddedNats, folder: Path) -> None:
        self.outbox = Outbox(1_000_000)
        self.slo_informer = NodeSloInformer(NODE, folder / "state")
        self.transport: Transport = (
            NatsTransport(NODE, Bus(server.url, name="agent"), self.outbox, self.slo_informer)
            if transport == "nats"
            else MqttTransport(NODE, Broker.parse(server.mqtt_url), self.outbox, self.slo_informer)
        )

    def put(self, kind: str, *seqs: int) -> None:
        for seq in seqs:
            self.outbox.put(Message(kind, seq, b"%d" % seq))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.transport.run())
        try:
            yield
        finally:
            await cancel_and_wait(task)
            await self.transport.close()


class IngestEnd:
    """Ingest's end: records the messages on this node's subjects, and answers requests."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.received: dict[str, list[int]] = {REPORT: [], ACTION: []}
        self.refuses: dict[int, str] = {}

    async def listen(self, transport: str) -> None:
        for kind in self.received:
            if transport == "nats":
                await self.bus.respond(subjects.subject(NODE, kind), self._answering(kind))
            else:  # the server maps topics to subjects
                await self.bus.subscribe(subjects.subject(NODE, kind), self._recording(kind))

    def _answering(self, kind: str) -> Callable[[bytes], "asyncio.Future[bytes]"]:
        async def respond(data: bytes) -> bytes:
            seq = int(data)
            self.received[kind].append(seq)
            return receipt.encode(Receipt("report", "boot", seq, self.refuses.get(seq, "")))

        return lambda data: asyncio.ensure_future(respond(data))

    def _recording(self, kind: str) -> Callable[[bytes], None]:
        return lambda data: self.received[kind].append(int(data))
