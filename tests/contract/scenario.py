"""Interfaces of the contract suite: a client of the cluster, a writer of intents, and a reader of `cluster`.

Every test runs twice: on a kube-apiserver behind the gateway, and on the simulator.
"""

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from shared.bus import Bus
from shared.events import EVENT_TYPES, Cause, Draft, Event
from shared.events.cluster import NodeObserved, PodObserved
from shared.events.log import WriterStarted
from shared.log.database import Database
from shared.log.reader import LogReader
from shared.log.writer import LogWriter
from shared.runtime.declared_intents import declared_refusal
from tests.support.intents import CONTEXTS
from tests.support.pods import written_pod
from tests.support.waiting import until

Object = dict[str, Any]
Kind = TypeVar("Kind", bound=Event)


class ClientRefused(Exception):
    """The API refused a request.

    Attributes:
        code: the HTTP status.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Client(Protocol):
    """A user's operations on a cluster. An object is identified by its apiVersion, kind and metadata."""

    async def create(self, body: Object) -> Object:
        """Creates an object; returns it as stored."""
        ...

    async def patch(self, reference: Object, patch: Object, subresource: str = "") -> Object:
        """Applies a JSON merge patch."""
        ...

    async def delete(self, reference: Object) -> None:
        """Deletes at once, without a grace period."""
        ...

    async def get(self, reference: Object) -> Object:
        """Reads an object."""
        ...

    async def create_node(self, name: str) -> Object:
        """Creates a node of 32 cores that is Ready and has no taint."""
        ...


class Log:
    """Reads `cluster`, written by the gateway or the simulator, and writes the contexts of all other services."""

    def __init__(self, postgres: str, nats: str) -> None:
        self._database = Database(postgres, application="contract")
        self._reader = LogReader(self._database)
        self._bus = Bus(nats, name="contract")
        self._writers = {context: LogWriter(self._database, self._bus, context, "contract") for context in CONTEXTS}

    async def open(self) -> None:
        """Becomes the writer of each context with intents."""
        await self._bus.start()
        for writer in self._writers.values():
            await writer.acquire()
            await writer.begin("contract", [WriterStarted], now_ns=time.time_ns(), seen={})

    async def close(self) -> None:
        """Stops writing."""
        for writer in self._writers.values():
            await writer.close()
        await self._bus.close()
        await self._database.close()

    async def append_intents(self, *events: Event, context: str = "") -> list[Cause]:
        """Appends intents in one transaction; by default to the first context that declares them."""
        named = context or next(one for one in CONTEXTS if not any(declared_refusal(one, event) for event in events))
        writer = self._writers[named]
        records = await writer.append([Draft(event) for event in events], now_ns=time.time_ns(), seen={})
        return [Cause(named, record.seq) for record in records]

    async def all(self, kind: type[Kind], key: str) -> list[Kind]:
        """Returns the events of an object in `cluster`, in order."""
        return [
            msgspec.json.decode(row.data, type=kind)
            async for row in self._reader.rows(context="cluster", kind=kind.__name__, key=key)
        ]

    async def wait_for(self, kind: type[Kind], key: str, holds: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Waits until `cluster` has an event of this type about `key` for which `holds`."""
        events = await until(
            lambda: self.all(kind, key), f"{kind.__name__} of {key}", holds=lambda events: any(map(holds, events))
        )
        return next(filter(holds, events))

    async def outcomes(self, cause: Cause, count: int = 1) -> list[Event]:
        """Waits for `count` events with an intent as their cause; returns them."""

        async def found() -> list[Event]:
            return [
                msgspec.json.decode(row.data, type=EVENT_TYPES[row.type])
                async for row in self._reader.rows(context="cluster")
                if row.cause == str(cause)
            ]

        return await until(found, f"{count} outcomes of {cause}", holds=lambda outcomes: len(outcomes) >= count)

    async def outcome(self, event: Event) -> Event:
        """Appends an intent and waits for its outcome."""
        (cause,) = await self.append_intents(event)
        return (await self.outcomes(cause))[0]


class Scenario:
    """Inputs of one test: the client, the log, and names that no other test uses."""

    def __init__(self, client: Client, log: Log, namespace: str) -> None:
        self.client = client
        self.log = log
        self.namespace = namespace

    def name(self, name: str) -> str:
        """Returns a name for a cluster-scoped object."""
        return f"{name}-{self.namespace[-6:]}"

    def key(self, name: str) -> str:
        """Returns the key of an object in the test's namespace."""
        return f"{self.namespace}/{name}"

    def reference(self, kind: str, name: str, api_version: str = "v1") -> Object:
        """Returns a reference to an object of the test's namespace, by name."""
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": self.namespace}}

    def node(self, name: str) -> Object:
        """Returns a reference to a node."""
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name(name)}}

    def pod(self, name: str = "web", **spec: Any) -> Object:
        """Returns a small pod."""
        requests = {"cpu": "500m", "memory": "512Mi"}
        return written_pod(
            name, namespace=self.namespace, requests=requests, **{"schedulerName": "koord-scheduler", **spec}
        )

    async def create_pod(self, name: str = "web", **spec: Any) -> str:
        """Creates a pod and waits for its observation; returns its uid."""
        uid: str = (await self.client.create(self.pod(name, **spec)))["metadata"]["uid"]
        await self.log.wait_for(PodObserved, self.key(name), lambda event: event.pod_uid == uid)
        return uid

    async def create_node(self, name: str) -> str:
        """Creates a node and waits for its observation without a taint; returns its name."""
        full = self.name(name)
        await self.client.create_node(full)
        await self.log.wait_for(NodeObserved, full, lambda event: not event.object.spec.taints)
        return full
