"""MQTT session of ingest: receives reports and actions, publishes rejections and NodeSLOs, over any broker with QoS 1.

A message is acknowledged after it was decided on, so a message that the broker has is not lost when this process ends.
The session is persistent and named after the shard, so the next leader takes it over.
"""

import asyncio
import logging
from collections.abc import Iterable

from aiomqtt import Client, Message, MqttError

from shared.agents import receipt, subjects
from shared.agents.broker import Broker
from shared.agents.receipt import Receipt
from shared.errors import KoordError
from shared.ingest.agent_message_queue import AgentInbox
from shared.runtime.service import Runtime

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
KEEPALIVE_S = 15
DEADLINE_S = 10.0
QOS = 1


class BrokerUnavailable(KoordError):
    """There is no connection to the broker at this moment."""


class MqttSession:
    """One session with a broker, which is opened again whenever it breaks.

    Attributes:
        connected: reports whether the broker is connected.
    """

    def __init__(self, url: str, name: str, inboxes: Iterable[AgentInbox], *, ca_file: str = "") -> None:
        """Prepares a session; `run` connects it.

        Args:
            url: KOORD_MQTT.
            name: the client id, which names the session.
            inboxes: the inbox of each kind of message.
            ca_file: the authority of the broker's certificate; empty: the system's.

        Raises:
            BadBroker: the url is invalid.
        """
        self._broker = Broker.parse(url)
        self._name = name
        self._inboxes = {inbox.kind: inbox for inbox in inboxes}
        self._tls = self._broker.tls_context(ca_file)
        self._client: Client | None = None

    @classmethod
    def of_service(cls, runtime: Runtime, client: str, inbox: AgentInbox) -> "MqttSession | None":
        """Prepares the session of a service that takes one kind of message; None without a broker.

        Args:
            client: the client id; empty: the service's name.

        Raises:
            BadBroker: KOORD_MQTT is invalid.
        """
        environment = runtime.environment
        if not environment.mqtt:
            return None
        return cls(environment.mqtt, client or f"koord-{runtime.service.name}", [inbox], ca_file=environment.nats_ca)

    @property
    def connected(self) -> bool:
        """Reports whether the broker is connected."""
        return self._client is not None

    async def run(self) -> None:
        """Receives messages until cancelled."""
        pause_s, logged = FIRST_PAUSE_S, False
        while True:
            client = self._new_client()
            try:
                async with client:
                    await client.subscribe([(subjects.every_topic(kind), QOS) for kind in self._inboxes])
                    self._client, pause_s, logged = client, FIRST_PAUSE_S, False
                    log.info("the broker is there", extra={"host": self._broker.host, "port": self._broker.port})
                    async for message in client.messages:
                        await self._receive(client, message)
            except (MqttError, OSError) as error:
                if not logged:  # logged once an outage
                    where = {"host": self._broker.host, "port": self._broker.port}
                    log.warning(
                        "no broker; agents and the broker keep what is sent", extra=where | {"error": str(error)}
                    )
                logged = True
            finally:
                self._client = None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def publish(self, topic: str, data: bytes, *, retain: bool = False) -> None:
        """Publishes a message and waits for the broker's acknowledgement.

        Raises:
            BrokerUnavailable: the message may not have reached the broker.
        """
        client = self._client
        if client is None:
            raise BrokerUnavailable(f"{topic}: no broker at {self._broker.host}:{self._broker.port} (KOORD_MQTT)")
        try:
            await client.publish(topic, data, qos=QOS, retain=retain)
        except MqttError as error:
            raise BrokerUnavailable(f"{topic}: {error}; see whether the broker runs (KOORD_MQTT)") from error

    def _new_client(self) -> Client:
        client = Client(
            self._broker.host,
            self._broker.port,
            username=self._broker.user,
            password=self._broker.password,
            identifier=self._name,
            clean_session=False,
            keepalive=KEEPALIVE_S,
            timeout=DEADLINE_S,
            tls_context=self._tls,
        )
        client.pending_calls_threshold = 1_000  # aiomqtt warns above this number; NodeSLOs go out many at a time
        client._client.manual_ack_set(True)  # noqa: FBT003, SLF001  aiomqtt acknowledges by itself and offers no switch
        return client

    async def _receive(self, client: Client, message: Message) -> None:
        kind = message.topic.value.rpartition("/")[2]
        inbox = self._inboxes.get(kind)
        # QoS 0: published over NATS, which delivers it to the inbox itself, or by a foreign client.
        if message.qos == 0:
            return
        node = _node_of(message)
        if inbox is None or not node or not inbox.concerns(node):
            self._acknowledge(client, message)  # of another shard: without this the broker would keep it for us
            return

        async def respond(reply: Receipt) -> None:
            if reply.refused:
                await self._refuse(message, reply)
            self._acknowledge(client, message)

        await inbox.put(message.topic.value, bytes(message.payload), "mqtt", respond)

    async def _refuse(self, message: Message, reply: Receipt) -> None:
        try:
            await self.publish(subjects.topic(_node_of(message), subjects.REFUSED), receipt.encode(reply))
        except BrokerUnavailable:
            log.info("a refusal could not be sent", extra={"topic": message.topic.value})

    @staticmethod
    def _acknowledge(client: Client, message: Message) -> None:
        client._client.ack(message.mid, message.qos)  # noqa: SLF001  of a connection that has ended: the broker sends it again


def _node_of(message: Message) -> str:
    try:
        return subjects.node_of(message.topic.value)
    except subjects.BadNode:
        return ""
