"""Failure of a follower: background tasks whose errors stop it, and parked events."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from shared.errors import KoordError
from shared.log.codec import Unreadable
from shared.log.database import FAILURES
from shared.log.service_store import ServiceStore
from shared.runtime.task_cancellation import cancel_and_wait

log = logging.getLogger(__name__)

PARKING_DEADLINE_S = 5.0
_PARKING = "parking"


class Parked(KoordError):
    """An event that cannot be decoded or folded stops the follower until a person decides about it."""

    def __init__(self, service: str, context: str, seq: int, error: BaseException) -> None:
        super().__init__(
            f"{service} cannot fold {context}/{seq}: {error!r}. It is parked and the service stands still; fix the code, or "
            f"skip the event with: koord events skip {service} {context}/{seq} --reason '...'"
        )


class FollowerTasks:
    """The tasks of one follower, and the error that stopped it.

    Attributes:
        failed: completes with the first error.
        started: the follower folds received batches; False while a State is loaded, and after a failure.
    """

    def __init__(self, service: str, store: ServiceStore) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.started = False
        self._service = service
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs a task in the background; an error in it stops the follower."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self) -> None:
        """Ends all tasks except one that records a parked event."""
        self.started = False
        await cancel_and_wait(*(task for task in self._tasks if task.get_name() != _PARKING))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop_at(self, error: Unreadable) -> None:
        """Parks the event in the background, and fails with its name."""
        self.started = False
        self.spawn(self._park_and_fail(error), _PARKING)

    async def park(self, error: Unreadable) -> Parked:
        """Records the event in the table of parked events, then fails with its name."""
        self.started = False
        parked = Parked(self._service, error.context, error.seq, error.error)
        try:
            async with asyncio.timeout(PARKING_DEADLINE_S):
                await self._store.park(error.context, error.seq, repr(error.error))
        except FAILURES as failure:
            log.warning(
                "cannot park the event", extra={"event": f"{error.context}/{error.seq}", "error": repr(failure)}
            )
        self.fail(parked)
        return parked

    def fail(self, error: BaseException) -> None:
        """Stops with an error, unless another was first."""
        self.started = False
        if not self.failed.done():
            self.failed.set_exception(error)
            self.failed.exception()  # retrieved here: the task that awaits `failed` reports it

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    async def _park_and_fail(self, error: Unreadable) -> None:
        await self.park(error)
