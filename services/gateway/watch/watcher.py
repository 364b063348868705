"""List and watch of one resource: list by pages, watch from there, reconnect, and list again when the version has
expired.

A list or watch that fails for any other reason is repeated with growing pauses; a failure is logged once, and the sink
keeps its reason until the resource is read again.

Lists are also repeated at a slow rate, and soon after one that removed objects: an object that was recorded as deleted
by mistake is recorded again. A list that the sink does not believe is repeated before anything is watched.

A watch ends by the server's time-out after a few minutes, or when it was idle for longer than bookmarks may stay away;
either way the next one continues from the last received version. Only a version that the server no longer has (410)
costs a list, which is compared with the log: `WatchResumed` records that the changes between were not observed one by
one.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec
import stamina

from services.gateway.kube_api.api_errors import ApiError, Busy, Expired, Forbidden, IdleWatch, NotFound
from services.gateway.kube_api.client import KubeApi
from services.gateway.kube_api.decoding import ApiObject, Decoder, Status, Unreadable
from services.gateway.kube_api.resources import ESSENTIAL, Resource
from services.gateway.kube_api.unused_field_removal import ObservedObject, keep_fields
from services.gateway.settings import GatewaySettings
from services.gateway.watch.incomplete_list_guard import ListResult
from shared.kube.resource_names import OF_OPENKRUISE

log = logging.getLogger(__name__)

REPEAT_S = 1.0
"""A list that lacks a large share of few objects is repeated after this pause: a moment's fault has ended by then."""


class ObservationSink(Protocol):
    """Receiver of observations."""

    def observed(self, resource: str, objects: Iterable[ObservedObject]) -> None:
        """Receives objects that exist or have changed."""
        ...

    def deleted(self, resource: str, key: str) -> None:
        """Receives the deletion of an object."""
        ...

    def list_begins(self, resource: str) -> None:
        """Receives the begin of a list, before its objects."""
        ...

    def listed(self, resource: str, keys: set[str]) -> ListResult:
        """Receives the end of a complete list: no other objects exist. A short list must be repeated."""
        ...

    def resumed(self, resource: str, reason: str) -> None:
        """Receives the reason why a watch could not continue and a list was necessary."""
        ...

    def unavailable(self, resource: str) -> None:
        """Receives that the resource cannot be listed: it is not installed, or not permitted."""
        ...

    def failing(self, resource: str, reason: str) -> None:
        """Receives the reason why the resource is not read; empty when it is read, or need not be."""
        ...

    def accepted(self, resource: str) -> None:
        """Receives that the server accepted a watch after a failure; whether it delivers shows later."""
        ...


class Watcher:
    """Lists and watches one resource for as long as it runs."""

    def __init__(self, api: KubeApi, resource: Resource, settings: GatewaySettings, sink: ObservationSink) -> None:
        self._api = api
        self._resource = resource
        self._settings = settings
        self._sink = sink
        self._decoder = Decoder(resource.name)
        self._version = ""
        self._received = False  # the current connection has delivered something
        self._failing = False  # the sink has a reason why the resource is not read
        self._missing = 0  # consecutive lists that found the resource not installed
        self._removed = False  # since then its objects are recorded as deleted
        self._reported = False
        self._compare_at_s = 0.0  # the next list, if none is needed before
        self._pause_s = settings.compare_interval_s

    @property
    def name(self) -> str:
        """Returns the resource's name."""
        return self._resource.name

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        name, reason = self._resource.name, ""
        while True:
            keys = await self._list_once_possible()
            result = self._sink.listed(name, keys)
            if not result.believed:
                doubtful = result is ListResult.DOUBTFUL
                await asyncio.sleep((REPEAT_S if doubtful else self._settings.short_list_interval_s) * _jitter())
                continue
            self._plan_comparison(result)
            if reason:
                log.warning("watch resumed by a new list", extra={"resource": name, "reason": reason})
                self._sink.resumed(name, reason)
            reason = await self._watch_while_possible()

    def _plan_comparison(self, result: ListResult) -> None:
        settings = self._settings
        removed = result is ListResult.REMOVED
        self._pause_s = settings.recheck_s if removed else min(2 * self._pause_s, settings.compare_interval_s)
        self._compare_at_s = _now_s() + self._pause_s * _jitter()

    # -- list

    async def _list_once_possible(self) -> set[str]:
        """Lists, with pauses while the server is busy, and longer ones while the resource is absent or forbidden."""
        settings = self._settings
        while True:
            try:
                async for attempt in self._retrying():
                    with attempt, self._failure_recorded("list"):
                        keys = await self._list()
                        self._missing = 0
                        self._removed = False
                        self._reported = False
                        self._reads()
                        return keys
            except NotFound as error:
                self._missing += 1
                self._report("resource is not installed")
                # No API server is without nodes and pods: a 404 for them comes from something between.
                if self.name in ESSENTIAL:
                    self._fails(f"list: {error}")
                else:
                    self._reads()
                    # One 404 may come from an API server that is starting; several are an empty list.
                    if self._missing >= 2 and not self._removed:
                        self._removed = self._sink.listed(self.name, set()).believed
            except Forbidden as error:
                self._report("resource is not permitted", rule=error.rule)
                self._fails(f"list: {error}; the rule `{error.rule}` is missing")
            self._sink.unavailable(self._resource.name)
            await asyncio.sleep(settings.absent_poll_interval_s * _jitter())

    def _report(self, text: str, **extra: str) -> None:
        first = logging.INFO if self.name in OF_OPENKRUISE else logging.WARNING
        level = logging.DEBUG if self._reported else first
        self._reported = True
        log.log(
            level,
            text,
            extra={"resource": self._resource.name, "again_in_s": self._settings.absent_poll_interval_s, **extra},
        )

    async def _list(self) -> set[str]:
        """Passes each page to the sink as it arrives; returns the keys of all objects."""
        keys: set[str] = set()
        token = ""
        self._sink.list_begins(self.name)
        while True:
            try:
                page = await self._api.page(self._resource, self._decoder, self._settings.page_size, token)
            except Expired as error:
                # The list took longer than the server keeps the continue token: begin anew, after a pause.
                raise Busy(str(error)) from error
            self._pass_on(page.items, keys)
            self._version, token = page.metadata.resource_version, page.metadata.continue_
            if not token:
                return keys

    def _pass_on(self, items: list[ApiObject | Unreadable], keys: set[str]) -> None:
        objects = []
        for item in items:
            if isinstance(item, Unreadable):
                self._unreadable(item)
                keys.add(item.key)
            else:
                seen = keep_fields(self._resource, item)
                keys.add(seen.key)
                objects.append(seen)
        self._sink.observed(self._resource.name, objects)

    # -- watch

    async def _watch_while_possible(self) -> str:
        """Watches, with reconnects; returns the reason for which a new list is needed, empty if it is only compared."""
        while _now_s() < self._compare_at_s:
            try:
                async for attempt in self._retrying():
                    with attempt, self._failure_recorded("watch"):
                        await self._watch()
            except Expired:
                return "Expired"
            except (NotFound, Forbidden) as error:
                return str(error)
        return ""

    async def _watch(self) -> None:
        """Reads one connection until it ends.

        Raises:
            Expired: the last received version is too old.
            ApiError: no connection, or one that broke before it delivered anything. One that delivered something and
                broke, or was idle, just ends, so that the next one is opened without a pause.
        """
        self._received = False
        last_s = max(1, int(min(self._settings.watch_s * _jitter(), self._compare_at_s - _now_s())))
        try:
            async for lines in self._api.watch(
                self._resource, self._version, last_s=last_s, watch_idle_timeout_s=self._settings.watch_idle_timeout_s
            ):
                self._read(lines)
        except (Expired, NotFound, Forbidden):
            raise
        except IdleWatch as error:
            # A resource that has not changed since the API server's start may have no bookmarks: nothing has failed.
            self._reads()
            log.info("watch was idle", extra={"resource": self.name, "error": str(error)})
        except ApiError as error:
            if not self._received:
                raise
            log.info("watch was cut", extra={"resource": self.name, "error": str(error)})

    def _read(self, lines: list[bytes]) -> None:
        if self._failing and not lines:
            self._sink.accepted(self.name)
        changed: list[ObservedObject] = []
        for data in lines:
            try:
                line = self._decoder.watch_event(data)
            except msgspec.DecodeError as error:
                self._flush(changed)
                raise Busy(f"watch {self.name}: a line is no JSON: {error}") from error
            if isinstance(line, Status):
                self._flush(changed)
                raise _ended(line)
            self._received = True
            self._reads()
            if isinstance(line, str):
                self._version = line
                continue
            if isinstance(line.object, Unreadable):
                self._unreadable(line.object)
                self._version = line.object.version
                continue
            seen = keep_fields(self._resource, line.object)
            if line.type == "DELETED":
                self._flush(changed)
                changed = []
                self._sink.deleted(self._resource.name, seen.key)
            else:
                changed.append(seen)
            self._version = seen.version
        self._flush(changed)

    def _flush(self, changed: list[ObservedObject]) -> None:
        if changed:
            self._sink.observed(self._resource.name, changed)

    def _unreadable(self, item: Unreadable) -> None:
        extra = {"resource": self._resource.name, "key": item.key, "error": item.error}
        log.error("object cannot be read; its last record stays valid", extra=extra)

    @contextmanager
    def _failure_recorded(self, what: str) -> Iterator[None]:
        """Logs the first failure of an outage, and passes each reason to the sink."""
        try:
            yield
        except (Expired, NotFound, Forbidden):
            raise
        except ApiError as error:
            level = logging.DEBUG if self._failing else logging.WARNING  # one line an outage, not one a try
            log.log(level, f"{what} is retried", extra={"resource": self.name, "error": str(error)})
            self._fails(f"{what}: {error}")
            raise

    def _fails(self, reason: str) -> None:
        self._failing = True
        self._sink.failing(self.name, reason)

    def _reads(self) -> None:
        if self._failing:
            self._failing = False
            self._sink.failing(self.name, "")

    def _retrying(self) -> AsyncIterator[stamina.Attempt]:
        settings = self._settings
        return stamina.retry_context(
            on=_pause_or_end,
            attempts=None,
            timeout=None,
            wait_initial=settings.backoff_s,
            wait_max=settings.backoff_max_s,
            wait_jitter=settings.backoff_s,
        )


def _ended(status: Status) -> Expired | Busy:
    """Returns the error for the Status with which the server ended a watch."""
    message = f"{status.code} {status.reason}: {status.message}"
    return Expired(message) if status.code == 410 else Busy(message)


def _pause_or_end(error: Exception) -> bool | float:
    """Returns whether a list or watch is repeated after an error, or the pause in seconds that the server requests."""
    if isinstance(error, Busy) and error.retry_after_s:
        return error.retry_after_s
    return isinstance(error, ApiError) and not isinstance(error, Expired | NotFound | Forbidden)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _jitter() -> float:
    """Returns a factor between 0.8 and 1, so that replicas and resources do not send requests in step."""
    return 0.8 + random.random() / 5  # noqa: S311  not a secret
