"""Reports and actions as MQTT messages of QoS 1: accepted once the broker acknowledges.

Rejections come on a topic of the node.

The broker stores nothing for an agent: NodeSLO and pods are retained, so a subscription brings them, and it is renewed
each minute. A broker may lose a retained message for a client that subscribes in that instant (NATS does), and a
subscription of QoS 1 is a consumer in NATS, which allows a thousand. A rejection that comes while the agent is away is
lost to it; ingest counts it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable

import msgspec
from aiomqtt import Client, MqttError

from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from services.node_agent.transport.outbox import Outbox
from services.node_agent.transport.transport_interface import POLL_INTERVAL_S, Backoff, until_one_ends
from shared.agents import receipt, subjects
from shared.agents.broker import Broker

log = logging.getLogger(__name__)

ACKNOWLEDGED_WITHIN_S = 10.0
KEEPALIVE_S = 30
REFUSED_FROM = 128
"""Codes in the response to a subscription from here on mean failure (MQTT 3.1.1, 3.9.3)."""


class MqttTransport:
    """Exchanges one node's messages through a broker."""

    def __init__(
        self,
        node: str,
        broker: Broker,
        outbox: Outbox,
        slo_informer: NodeSloInformer,
        pods: NodePodsInformer | None = None,
        *,
        ca_file: str = "",
    ) -> None:
        self._node = node
        self._broker = broker
        self._outbox = outbox
        self._slo_informer = slo_informer
        self._pods = pods
        self._tls = broker.tls_context(ca_file)
        self._connected = False

    @property
    def connected(self) -> bool:
        """Reports whether there is a session with the broker."""
        return self._connected

    async def run(self) -> None:
        """Runs until cancelled; reconnects by itself."""
        login = self._broker.user
        if login and login != subjects.token(self._node):
            log.warning(
                "the login in KOORD_MQTT is not this node's; a broker that restricts logins to their own topics drops all reports",
                extra={"login": login, "node": self._node},
            )
        backoff, logged = Backoff(), False
        while True:
            try:
                async with self._client() as client:
                    await self._subscribe(client, subjects.TO_AGENT)
                    if logged:
                        log.info("the broker is there again", extra={"waiting": len(self._outbox)})
                    self._connected, logged = True, False
                    backoff.reset()
                    await self._exchange(client)
            except (MqttError, OSError) as error:
                if not logged:
                    details = {"host": self._broker.host, "port": self._broker.port, "error": str(error)}
                    log.warning("no broker; reports are kept", extra=details | {"waiting": len(self._outbox)})
                logged = True
            finally:
                self._connected = False
            await backoff.wait()

    async def close(self) -> None:
        """Nothing to do: `run` ends its connection itself."""

    def _client(self) -> Client:
        broker = self._broker
        return Client(
            broker.host,
            broker.port,
            username=broker.user,
            password=broker.password,
            identifier=f"koord-agent-{subjects.token(self._node)}",
            clean_session=True,
            keepalive=KEEPALIVE_S,
            tls_context=self._tls,
            timeout=ACKNOWLEDGED_WITHIN_S,
            max_queued_incoming_messages=1_000,
        )

    async def _subscribe(self, client: Client, kinds: Iterable[str]) -> None:
        """Subscribes to the topics of this node, which also delivers retained messages again.

        Raises:
            MqttError: the login is another node's. NATS reports that only here; a forbidden publish is acknowledged and
                dropped.
        """
        topics = [subjects.topic(self._node, kind) for kind in kinds]
        answers = await client.subscribe([(topic, 0) for topic in topics])
        codes = [code if isinstance(code, int) else code.value for code in answers]
        for topic, code in zip(topics, codes, strict=True):
            if code >= REFUSED_FROM:
                raise MqttError(
                    f"the broker does not let {self._broker.user or 'a client without login'} subscribe to {topic}; give the login of node "
                    f"{self._node} in KOORD_MQTT (`koord credentials node`)"
                )

    async def _exchange(self, client: Client) -> None:
        """Sends and receives until the connection ends.

        Raises:
            MqttError: the reason of its end.
        """
        await until_one_ends(self._send(client), self._receive(client), self._poll_slo(client))

    async def _send(self, client: Client) -> None:
        while True:
            message = await self._outbox.next()
            await client.publish(subjects.topic(self._node, message.kind), message.data, qos=1)
            self._outbox.done(message)

    async def _poll_slo(self, client: Client) -> None:
        while True:
            await asyncio.sleep(POLL_INTERVAL_S)
            await self._subscribe(client, [subjects.SLO])

    async def _receive(self, client: Client) -> None:
        slo, pods = (subjects.topic(self._node, kind) for kind in (subjects.SLO, subjects.PODS))
        async for message in client.messages:
            data = bytes(message.payload)
            if message.topic.value == slo:
                self._slo_informer.receive(data)
                continue
            if message.topic.value == pods:
                if self._pods is not None:
                    self._pods.receive(data)
                continue
            with contextlib.suppress(msgspec.DecodeError):  # a topic of ours, to which others may write too
                reply = receipt.decode(data)
                self._outbox.refuse(reply.kind, reply.seq, reply.refused)
