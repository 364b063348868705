"""An event loop in virtual time that runs several simulated processes, in an order that a seed decides.

Callbacks of one process run in the order in which they were scheduled, as asyncio guarantees them; which process runs
next is drawn. Time passes only while no process can run, so a history is a function of the seed. A process that is
killed runs nothing more, not even its `finally` blocks, as after `kill -9`; one that is stopped runs later.
"""

import asyncio
import random
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import Any

Callback = Callable[..., object]


class Process:
    """One simulated operating system process.

    Attributes:
        alive: False once it was killed; its callbacks are dropped from then on.
        stopped: it runs nothing until it is continued, as after SIGSTOP.
        skew_ns: offset of its wall clock.
        owner: the replica that it runs, if it runs one.
        ready: callbacks that can run, oldest first.
    """

    def __init__(self, name: str, *, skew_ns: int = 0) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        self.skew_ns = skew_ns
        self.owner: Any = None
        self.ready: deque[Handle] = deque()
        self.context = copy_context()
        self.context.run(PROCESS.set, self)


PROCESS: ContextVar[Process] = ContextVar("process")
"""The process that runs now; tasks and callbacks inherit it."""


class Handle:
    """A scheduled callback."""

    __slots__ = ("_when", "args", "callback", "context", "process")

    def __init__(self, callback: Callback, args: tuple[Any, ...], context: Context, process: Process) -> None:
        self.callback: Callback | None = callback
        self.args = args
        self.context = context
        self.process = process
        self._when = 0.0

    def cancel(self) -> None:
        """Drops the callback."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Reports whether it was cancelled, or has run."""
        return self.callback is None

    def when(self) -> float:
        """Returns the loop's time at which it is due."""
        return self._when


class _Numbered:
    """Hashes by a number of its own: sets of tasks then have the same order in every run of a seed."""

    _number = 0

    def __hash__(self) -> int:
        return self._number


class SimulatedTask(_Numbered, asyncio.Task[Any]):
    """A task with a reproducible hash."""


class SimulatedFuture(_Numbered, asyncio.Future[Any]):
    """A future with a reproducible hash."""


MOST_TASKS = 2_000
"""Tasks after which those that have ended are let go."""

LONGEST_THREAD_S = 0.1
"""Time that a call in a thread takes at most."""

CLOSED_WITHIN = 10
"""Waits in `finally` blocks that are passed over when a coroutine is closed."""


def _close(task: SimulatedTask) -> None:
    if task.done():
        return
    coroutine: Any = task.get_coro()
    for _ in range(CLOSED_WITHIN):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112  its process was killed: what it would do now does not matter
            continue
        return


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop.

    Attributes:
        steps: callbacks run so far.
        after_step: called after each callback with the process that ran it.
    """

    def __init__(self, seed: int, after_step: Callable[[Process], None]) -> None:
        self.steps = 0
        self.after_step = after_step
        self.outside = Process("outside")
        self._random = random.Random(seed)  # noqa: S311
        self._now = 0.0
        self._timers: list[tuple[float, int, Handle]] = []
        self._runnable: list[Process] = []
        self._number = count(1).__next__
        self._tasks: list[SimulatedTask] = []  # none is destroyed, which would run its `finally` blocks, before the end

    # -- the part of AbstractEventLoop that asyncio's own code uses

    def time(self) -> float:
        """Seconds since the world began."""
        return self._now

    def call_soon(self, callback: Callback, *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        """Schedules a callback of the process in whose context it is called."""
        if context is None:
            context = copy_context()
        process = context.get(PROCESS) or self.outside
        handle = Handle(callback, args, context, process)
        if process.alive:
            ready = process.ready
            if not ready and not process.stopped:
                self._runnable.append(process)
            ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(self, delay: float, callback: Callback, *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        """Schedules a callback after a delay."""
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, context, context.get(PROCESS) or self.outside)
        handle._when = when = self._now + delay  # noqa: SLF001
        heappush(self._timers, (when, self._number(), handle))
        return handle

    def call_at(self, when: float, callback: Callback, *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        """Schedules a callback at an instant."""
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, context, context.get(PROCESS) or self.outside)
        handle._when = when  # noqa: SLF001
        heappush(self._timers, (when, self._number(), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Returns a future."""
        future = SimulatedFuture(loop=self)
        future._number = self._number()  # noqa: SLF001
        return future

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Runs what a service gives to a thread: at once, when its time has come, and its process lives."""
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001  as a thread's, it is that of the future
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._random.random() * LONGEST_THREAD_S, run)
        return future

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        """Starts a task in the process that calls."""
        number = self._number()
        SimulatedTask._number = number  # noqa: SLF001  asyncio registers a task by its hash while it is constructed
        task = SimulatedTask(coro, loop=self, name=name or f"task-{number}", context=context)
        task._number = number  # noqa: SLF001
        if len(self._tasks) >= MOST_TASKS:
            self._tasks = [other for other in self._tasks if not other.done()]
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        """Reports that asyncio's debug mode is off."""
        return False

    def is_running(self) -> bool:
        """Reports that the loop runs."""
        return True

    def is_closed(self) -> bool:
        """Reports that it never closes: a world that has ended schedules nothing more."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignores what asyncio reports of tasks that nobody awaits: processes are evaluated by their end."""

    def add_signal_handler(self, sig: int, callback: Callback, *args: Any) -> None:  # type: ignore[override]
        """Ignores the handlers of signals; `Process.stopped` and `kill` stand for them."""

    async def shutdown_asyncgens(self) -> None:
        """Does nothing: generators end with the world."""

    # -- processes

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a coroutine as a task of a process."""
        return process.context.run(lambda: self.create_task(work, context=process.context))

    def kill(self, process: Process) -> None:
        """Ends a process at once."""
        process.alive = False
        process.ready.clear()
        if process in self._runnable:
            self._runnable.remove(process)

    def stop_process(self, process: Process) -> None:
        """Stops a process, as SIGSTOP does."""
        process.stopped = True
        if process in self._runnable:
            self._runnable.remove(process)

    def continue_process(self, process: Process) -> None:
        """Continues a process, as SIGCONT does."""
        if process.stopped:
            process.stopped = False
            if process.ready and process.alive:
                self._runnable.append(process)

    def dispose(self) -> None:
        """Closes the coroutines of all tasks. Destroyed by the garbage collector, in no order, they would use what is
        destroyed already.
        """
        self._timers.clear()
        self._runnable.clear()
        with self.current():
            for task in self._tasks:
                _close(task)
        self._tasks.clear()

    # -- running

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes this the running loop."""
        previous = events._get_running_loop()  # noqa: SLF001  meant for loops
        events._set_running_loop(self)  # noqa: SLF001
        try:
            yield
        finally:
            events._set_running_loop(previous)  # noqa: SLF001

    def run_until(self, end_s: float) -> None:
        """Runs callbacks until the given instant."""
        runnable, draw, after_step = self._runnable, self._random.random, self.after_step
        with self.current():
            while True:
                if not runnable and not self._advance(end_s):
                    return
                if not runnable:
                    continue
                process = runnable[int(draw() * len(runnable))] if len(runnable) > 1 else runnable[0]
                handle = process.ready.popleft()
                if not process.ready:
                    runnable.remove(process)
                callback = handle.callback
                if callback is None:
                    continue
                handle.callback = None
                handle.context.run(callback, *handle.args)
                self.steps += 1
                after_step(process)

    def _advance(self, end_s: float) -> bool:
        """Goes on to the next timers; returns False when there are none before the end."""
        timers, runnable = self._timers, self._runnable
        while timers and (timers[0][2].callback is None or not timers[0][2].process.alive):
            heappop(timers)
        if not timers or timers[0][0] > end_s:
            self._now = max(self._now, end_s)
            return False
        self._now = when = max(self._now, timers[0][0])
        while timers and timers[0][0] <= when:
            handle = heappop(timers)[2]
            process = handle.process
            if handle.callback is not None and process.alive:
                ready = process.ready
                if not ready and not process.stopped:
                    runnable.append(process)
                ready.append(handle)
        return True
