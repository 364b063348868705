"""The runner of every service: it follows, waits for the lock, leads, and drains.

An error that cannot be handled ends the process; the supervisor, or Kubernetes, starts it again.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from shared.bus.rejected_stream_requests import AUDITED, record_rejected
from shared.errors import KoordError
from shared.log.database import FAILURES
from shared.log.position import LogRewound, Position
from shared.log.snapshot import SnapshotFailed
from shared.runtime import health, json_logging, tracing
from shared.runtime.garbage_collection import collect_seldom
from shared.runtime.rebuild import watch_rebuilds
from shared.runtime.retention import watch_disk, watch_retention
from shared.runtime.retention_settings import RetentionSettings
from shared.runtime.service import Environment, Responder, Runtime, Service, SubjectResponder, libraries, release
from shared.runtime.task_cancellation import cancel_and_wait
from shared.settings import Settings, unknown_variables

log = logging.getLogger(__name__)

DRAIN_DEADLINE_S = 10.0
REGISTER_INTERVAL_S = 10.0
STANDBY_AFTER_S = 0.5
"""Seconds within which a free lock is acquired; a replica that still waits then is a standby."""


def run(service: Service) -> int:
    """Runs a service until SIGTERM or SIGINT. Returns the process's exit status."""
    environment = Environment.load("", os.environ)
    json_logging.set_up(service.name, environment.log_level)
    tracing.set_up(service.name, environment.otlp_endpoint)
    settings = service.settings.load(service.name, os.environ)
    for text in unknown_variables(service.name, (service.settings, RetentionSettings), os.environ):
        log.warning(text)
    collect_seldom()
    try:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(service, settings, environment))
    except KoordError as error:
        log.error(str(error), extra={"error": type(error).__name__})  # noqa: TRY400  the text says what to do
        return 1
    return 0


async def _run(service: Service, settings: Settings, environment: Environment) -> None:
    await serve(Runtime(service, settings, environment))


async def serve(runtime: Runtime) -> None:
    """Follows, waits for the lock, leads, and drains; an error that cannot be handled ends it."""
    service, environment = runtime.manifest, runtime.environment
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runtime.drain)
    probes = (
        await health.serve(environment.http_addr, runtime.status, runtime.metrics) if environment.http_addr else None
    )
    await runtime.bus.start()
    if runtime.service.manifest.streams:
        await runtime.bus.subscribe(AUDITED, lambda data: record_rejected(data, runtime.rejections))
    leading: asyncio.Task[None] | None = None
    around = AsyncExitStack()
    try:
        if service.lifespan is not None:
            runtime.resources = await around.enter_async_context(service.lifespan(runtime))
        leading = asyncio.create_task(_follow_and_lead(runtime), name="lead")
        watched: set[asyncio.Future[Any]] = {
            leading,
            runtime.follower.failed,
            runtime.writer.lost,
            asyncio.create_task(runtime.draining.wait()),
        }
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if runtime.draining.is_set() and not leading.done() and runtime.writer.epoch:
            ends = {leading, runtime.writer.lost}
            done, _ = await asyncio.wait(ends, timeout=DRAIN_DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            await ended
    finally:
        if leading is not None:
            await cancel_and_wait(leading)
        await around.aclose()
        await runtime.writer.close()
        await runtime.follower.stop()
        await runtime.bus.close()
        await runtime.database.close()
        if probes is not None:
            await probes.cleanup()


async def _follow_and_lead(runtime: Runtime) -> None:
    service, follower, writer = runtime.service, runtime.follower, runtime.writer
    emitted = [kind.type_name() for kind in service.emits]
    await runtime.database_contact.responds(lambda: runtime.store.check_readers(service.writes, emitted))
    runtime.phase = "following"
    gc.disable()
    try:
        await follower.start()
    finally:
        gc.freeze()  # loaded objects stay: collections need not traverse them
        gc.enable()
    for subject, answer in service.serves.items():
        await runtime.bus.respond_on(subject, _bound(answer, runtime))
    background = [asyncio.create_task(_register(runtime), name="register")]
    try:
        await follower.caught_up(await runtime.log.last_seen(service.writes))
        runtime.phase = "waiting-for-lock"
        head = await _acquired(service, runtime)
        follower.take_over()
        await _stand_at(runtime, head)
        await watch_disk(runtime)
        await writer.begin(
            release(),
            service.emits,
            now_ns=runtime.now_ns(),
            seen=dict(runtime.state.positions),
            libraries=libraries(),
        )
        kept = await runtime.store.snapshot_names(runtime.state.SCHEMA)
        runtime.base = kept[0] if kept else None
        runtime.phase = "leading"
        log.info("leading", extra={"context": service.writes, "epoch": writer.epoch, "head": head.seq})
        background.append(asyncio.create_task(_snapshots(runtime), name="snapshots"))
        background.append(asyncio.create_task(watch_rebuilds(runtime), name="rebuilds"))
        background.append(asyncio.create_task(watch_retention(runtime), name="retention"))
        background.append(asyncio.create_task(_led(service, runtime), name="lead"))
        done, _ = await asyncio.wait(background, return_when=asyncio.FIRST_COMPLETED)
        for ended in done:
            await ended
        if runtime.draining.is_set():
            await runtime.snapshot()
    finally:
        await cancel_and_wait(*background)


async def _acquired(service: Service, runtime: Runtime) -> Position:
    """Waits for the lock; `stand_by` ends with that, and an error in it ends the process."""
    tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(runtime.writer.acquire())]
    locked = tasks[0]
    try:
        await asyncio.wait(tasks, timeout=STANDBY_AFTER_S)
        if service.stand_by is not None and not locked.done():
            tasks.append(asyncio.ensure_future(service.stand_by(runtime)))
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if locked not in done:
            for ended in done:
                await ended
        head: Position = await locked
        return head
    finally:
        await cancel_and_wait(*tasks)


async def _led(service: Service, runtime: Runtime) -> None:
    await service.lead(runtime)


async def _stand_at(runtime: Runtime, head: Position) -> None:
    """Folds the own log to the head under the lock, the others to the positions that the predecessor had seen."""
    position = await runtime.follower.read_to_head(runtime.service.writes)
    if position != head:
        raise LogRewound(runtime.service.writes, position, head.digest)
    await runtime.follower.caught_up(await runtime.log.last_seen(runtime.service.writes))


def _bound(answer: Responder | SubjectResponder, runtime: Runtime) -> Callable[[str, bytes], Awaitable[bytes]]:
    async def respond(subject: str, data: bytes) -> bytes:
        if isinstance(answer, SubjectResponder):
            return await answer.respond(runtime, subject, data)
        return await answer(runtime, data)

    return respond


async def _register(runtime: Runtime) -> None:
    while True:
        try:
            await runtime.store.register(runtime.state.positions, runtime.follower.readable)
        except FAILURES as error:  # the next attempt is soon enough: a registration lasts for days
            log.warning("cannot register as a follower", extra={"error": repr(error)})
        await asyncio.sleep(REGISTER_INTERVAL_S)


async def _snapshots(runtime: Runtime) -> None:
    folded = 0
    while True:
        await asyncio.sleep(runtime.environment.snapshot_interval_s)
        if runtime.follower.folded == folded:
            continue
        try:
            await runtime.snapshot()
        except (SnapshotFailed, *FAILURES) as error:  # the next start reads a longer tail, and loses no event
            log.warning("cannot write a snapshot", extra={"error": repr(error)})
            continue
        folded = runtime.follower.folded
        gc.collect()  # garbage since the last freeze; frozen with the rest it would never be freed
        gc.freeze()
