"""A real kube-apiserver as a side of the benchmark.

The client is kept cheap: it shares its cores with what it measures.
"""

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import aiohttp
import msgspec

from cli.bench.e2e_pod_latency import Timeline
from cli.bench.e2e_target import pod, pod_group
from shared.domain.gang import POD_GROUP_LABEL
from shared.errors import KoordError

CONCURRENT = 64


class _Metadata(msgspec.Struct):
    name: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _WatchEvent(msgspec.Struct):
    type: str
    object: _Object


_WATCH_EVENT = msgspec.json.Decoder(_WatchEvent)
_OBJECT = msgspec.json.Decoder(_Object)


class _Body(NamedTuple):
    """An object to create: the path of its collection, its name if it is a pod, and its JSON."""

    path: str
    pod: str
    text: bytes


class KubeSide:
    """Posts pods over 64 connections and watches for those that have a node.

    Attributes:
        gang_size: each so many pods are a gang that needs all of them, with a PodGroup created before the first of
            them and within the measured time; 0 for pods without a gang.
    """

    def __init__(self, url: str, tls: ssl.SSLContext, namespace: str, scheduler: str, *, gang_size: int = 0) -> None:
        self.gang_size = gang_size
        self._pods = f"{url}/api/v1/namespaces/{namespace}/pods"
        self._groups = f"{url}/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/podgroups"
        self._tls = tls
        self._namespace = namespace
        self._scheduler = scheduler
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=CONCURRENT + 1, force_close=False)
        self._session = aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def run(self, names: Sequence[str], timeline: Timeline) -> None:
        """See `Side`."""
        bodies = self._bodies(names)
        watching = asyncio.Event()
        watch = asyncio.create_task(self._watch(timeline, watching))
        bound = asyncio.create_task(timeline.all_bound.wait())
        try:
            await asyncio.wait({watch, asyncio.create_task(watching.wait())}, return_when=asyncio.FIRST_COMPLETED)
            timeline.begin()
            left = iter(bodies)
            await asyncio.gather(*(self._create(left, timeline) for _ in range(CONCURRENT)))
            done, _ = await asyncio.wait({watch, bound}, return_when=asyncio.FIRST_COMPLETED)
            if watch in done:
                await watch  # it ends by an error only
        finally:
            watch.cancel()
            bound.cancel()
            await asyncio.gather(watch, bound, return_exceptions=True)

    async def clear(self, names: Sequence[str]) -> None:
        """See `Side`. The namespace holds no other pods."""
        assert names
        for path in (self._pods, self._groups) if self.gang_size else (self._pods,):
            async with self._session.delete(path, json={"gracePeriodSeconds": 0}) as answer:
                await answer.read()
        for _ in range(600):
            async with self._session.get(self._pods, params={"limit": "1"}) as answer:
                if not msgspec.json.decode(await answer.read())["items"]:
                    return
            await asyncio.sleep(0.1)

    def _bodies(self, names: Sequence[str]) -> list[_Body]:
        """Returns the objects in the order in which they are created."""
        found: list[_Body] = []
        for number, name in enumerate(names):
            body = pod(name, self._namespace, self._scheduler)
            if self.gang_size:
                first = number - number % self.gang_size
                gang = f"gang-{names[first]}"
                if number == first:
                    group = pod_group(gang, min(self.gang_size, len(names) - first))
                    found.append(_Body(self._groups, "", msgspec.json.encode(group)))
                body["metadata"]["labels"][POD_GROUP_LABEL] = gang
            found.append(_Body(self._pods, name, msgspec.json.encode(body)))
        return found

    async def _create(self, bodies: Iterator[_Body], timeline: Timeline) -> None:
        headers = {"Content-Type": "application/json"}
        for path, name, body in bodies:
            async with self._session.post(path, data=body, headers=headers) as answer:
                text = await answer.read()
                if answer.status != 201:
                    raise KoordError(f"the API server did not take {name or path}: {answer.status} {text.decode()}")
            if name:
                timeline.created(name)

    async def _watch(self, timeline: Timeline, watching: asyncio.Event) -> None:
        async with self._session.get(self._pods, params={"limit": "1"}) as answer:
            version = _OBJECT.decode(await answer.read()).metadata.resource_version
        while True:  # the API server ends a watch that does not take its events fast enough; it goes on where it was
            version = await self._watch_from(version, timeline, watching)

    async def _watch_from(self, version: str, timeline: Timeline, watching: asyncio.Event) -> str:
        """Watches until the API server ends it; the resourceVersion to go on from."""
        # The API server sends only pods with a node, so a pod costs this client one line.
        query = {"watch": "1", "resourceVersion": version, "fieldSelector": "spec.nodeName!="}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._pods, params=query, timeout=timeout) as answer:
            if answer.status != 200:
                raise KoordError(f"the API server refuses the watch: {answer.status} {await answer.text()}")
            watching.set()
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = _WATCH_EVENT.decode(line)
                    if event.type == "ERROR":
                        raise KoordError(f"the API server ends the watch: {line.decode()}")
                    version = event.object.metadata.resource_version
                    if event.type != "DELETED":
                        timeline.bound(event.object.metadata.name)
        return version
