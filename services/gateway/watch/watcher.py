"""Following one resource: list it by pages, watch it from there, go on where a connection ended, list again when that is too old.

A watch ends by the server's time-out after a few minutes, or when nothing was heard for longer than bookmarks may stay away;
either way the next one goes on from the last version heard. Only a version that the server has forgotten (410) costs a list,
which is compared with the log: `WatchResumed` records that the steps between are unknown.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable
from typing import Protocol

import msgspec
import stamina

from services.gateway.kube_api.api_errors import Busy, Expired, Forbidden, NotFound
from services.gateway.kube_api.api_types import Decoder, Status, Unreadable, Wire
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.resources import Resource
from services.gateway.settings import GatewaySettings
from services.gateway.watch.field_filter import Seen, see

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Who is told what was seen."""

    def seen(self, resource: str, objects: Iterable[Seen]) -> None:
        """Objects are there, or have changed."""
        ...

    def gone(self, resource: str, key: str) -> None:
        """An object was deleted."""
        ...

    def listed(self, resource: str, keys: set[str]) -> None:
        """A list is complete: nothing but these is there."""
        ...

    def resumed(self, resource: str, reason: str) -> None:
        """The list became necessary because the watch could not go on."""
        ...

    def unavailable(self, resource: str) -> None:
        """The resource cannot be listed at present: it is not installed, or not permitted."""
        ...


class Watcher:
    """Follows one resource for as long as it runs."""

    def __init__(self, api: KubeApi, resource: Resource, settings: GatewaySettings, sink: Sink) -> None:
        self._api = api
        self._resource = resource
        self._settings = settings
        self._sink = sink
        self._decoder = Decoder(resource.name)
        self._version = ""
        self._heard = False  # whether the connection under way has brought anything
        self._cut = False  # whether the connections before it brought nothing
        self._missing = 0  # how many lists in a row found the resource not installed
        self._reported = False

    @property
    def name(self) -> str:
        """The resource's."""
        return self._resource.name

    async def run(self) -> None:
        """List, watch, and so on; ends only by cancellation."""
        name, reason = self._resource.name, ""
        while True:
            keys = await self._list_once_possible()
            self._sink.listed(name, keys)
            if reason:
                log.warning("watch resumed by a new list", extra={"resource": name, "reason": reason})
                self._sink.resumed(name, reason)
            reason = await self._watch_while_possible()

    # -- list

    async def _list_once_possible(self) -> set[str]:
        """List, with pauses while the server is busy, and longer ones while the resource is not there for us."""
        settings = self._settings
        while True:
            try:
                async for attempt in self._retrying():
                    with attempt:
                        keys = await self._list()
                        self._missing = 0
                        self._reported = False
                        return keys
            except NotFound:
                self._missing += 1
                self._report("resource is not installed")
                if self._missing == 2:  # once may be an API server that is starting; twice means its objects are gone
                    self._sink.listed(self._resource.name, set())
            except Forbidden as error:
                self._report("resource is not permitted", rule=error.rule)
            self._sink.unavailable(self._resource.name)
            await asyncio.sleep(settings.absent_poll_interval_s * _jitter())

    def _report(self, text: str, **extra: str) -> None:
        level = logging.DEBUG if self._reported else logging.WARNING
        self._reported = True
        log.log(
            level,
            text,
            extra={"resource": self._resource.name, "again_in_s": self._settings.absent_poll_interval_s, **extra},
        )

    async def _list(self) -> set[str]:
        """All pages, told of as they come; returns the keys of all objects."""
        keys: set[str] = set()
        token = ""
        while True:
            try:
                page = await self._api.page(self._resource, self._decoder, self._settings.page_size, token)
            except Expired:  # the list took longer than the server remembers: begin anew
                keys, token = set(), ""
                continue
            self._tell(page.items, keys)
            self._version, token = page.metadata.resource_version, page.metadata.continue_
            if not token:
                return keys

    def _tell(self, items: list[Wire | Unreadable], keys: set[str]) -> None:
        objects = []
        for item in items:
            if isinstance(item, Unreadable):
                self._unreadable(item)
                keys.add(item.key)
            else:
                seen = see(self._resource, item)
                keys.add(seen.key)
                objects.append(seen)
        self._sink.seen(self._resource.name, objects)

    # -- watch

    async def _watch_while_possible(self) -> str:
        """Watch, reconnecting as needed; returns why a new list is needed."""
        while True:
            try:
                async for attempt in self._retrying():
                    with attempt:
                        await self._watch()
            except Expired:
                return "Expired"
            except (NotFound, Forbidden) as error:
                return str(error)

    async def _watch(self) -> None:
        """One connection, until it ends.

        Raises:
            Expired: the last version heard is too old.
            Busy: there was no connection, or it brought nothing; one that brought something and broke just ends.
        """
        self._heard = False
        last_s = max(1, int(self._settings.watch_s * _jitter()))
        try:
            async for lines in self._api.watch(
                self._resource, self._version, last_s=last_s, watch_idle_timeout_s=self._settings.watch_idle_timeout_s
            ):
                self._read(lines)
        except Busy as error:
            level = logging.DEBUG if self._cut else logging.INFO  # one line a silence, not one a try
            log.log(level, "watch was cut", extra={"resource": self._resource.name, "error": str(error)})
            self._cut = not self._heard
            if self._cut:
                raise

    def _read(self, lines: list[bytes]) -> None:
        changed: list[Seen] = []
        for data in lines:
            try:
                line = self._decoder.line(data)
            except msgspec.DecodeError as error:
                self._flush(changed)
                raise Busy(f"watch {self.name}: a line is no JSON: {error}") from error
            if isinstance(line, Status):
                self._flush(changed)
                raise _ended(line)
            self._heard, self._cut = True, False
            if isinstance(line, str):
                self._version = line
                continue
            if isinstance(line.object, Unreadable):
                self._unreadable(line.object)
                self._version = line.object.version
                continue
            seen = see(self._resource, line.object)
            if line.type == "DELETED":
                self._flush(changed)
                changed = []
                self._sink.gone(self._resource.name, seen.key)
            else:
                changed.append(seen)
            self._version = seen.version
        self._flush(changed)

    def _flush(self, changed: list[Seen]) -> None:
        if changed:
            self._sink.seen(self._resource.name, changed)

    def _unreadable(self, item: Unreadable) -> None:
        extra = {"resource": self._resource.name, "key": item.key, "error": item.error}
        log.error("object cannot be read; what was last recorded of it stands", extra=extra)

    def _retrying(self) -> AsyncIterator[stamina.Attempt]:
        settings = self._settings
        return stamina.retry_context(
            on=Busy,
            attempts=None,
            timeout=None,
            wait_initial=settings.backoff_s,
            wait_max=settings.backoff_max_s,
            wait_jitter=settings.backoff_s,
        )


def _ended(status: Status) -> Expired | Busy:
    """Why the server ended a watch."""
    message = f"{status.code} {status.reason}: {status.message}"
    return Expired(message) if status.code == 410 else Busy(message)


def _jitter() -> float:
    """Between 0.8 and 1: replicas and resources must not ask in step."""
    return 0.8 + random.random() / 5  # noqa: S311  not a secret
