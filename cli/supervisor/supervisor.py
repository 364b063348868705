"""Keeps services running: each a process of its own, restarted with backoff when it ends, its status polled every half
second.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
import msgspec

import cli
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from cli.processes.log_rotation import MAX_BYTES, rotate
from cli.supervisor import first_compilation
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.exit_reason import why_it_ended
from cli.supervisor.login_environment import variables
from cli.supervisor.restart_backoff import next_delay
from shared.errors import KoordError
from shared.runtime.status import Status
from shared.runtime.task_cancellation import cancel_and_wait

POLL_INTERVAL_S = 0.5
START_S = 60.0
"""Seconds after which a process that has not responded yet counts as one that hangs."""
COMPILES_S = 600.0
"""The same of a first start that compiles, which takes minutes on a machine that is busy."""
SILENT_S = 3.0
"""Seconds without a response after which a process that has responded counts as silent."""
_TAIL_BYTES = 65_536
STABLE_S = 300.0
"""Time after which the reason of a service's last end is not shown any more, once the service responds."""
DRAIN_S = 15.0
"""The runner gives a service 10 s to drain and then writes a snapshot."""


class NotReady(KoordError):
    """Services did not reach the awaited state; the text has the state of each."""


class Spec(NamedTuple):
    """One process to keep.

    Attributes:
        name: unique; two replicas of a service differ in it.
        service: what `koord run` gets.
        env: added to the environment, such as KOORD_SCHEDULER_<FIELD>.
        command: what is run; `koord run SERVICE` when empty.
    """

    name: str
    service: str
    env: Mapping[str, str] = {}
    command: Sequence[str] = ()


class Unit:
    """A process that is kept, and what is known of it.

    Attributes:
        restarts: how often it was started again.
        why: why it ended last; empty until it did.
        ended_s: when it did, seconds since the epoch.
        silent_s: since when it runs and does not respond, although it did or should; None while it responds.
        status: its newest status; None while it does not respond.
        answered: this process has responded at least once.
        compiles: it compiles before it responds, as it does once in each installation.
        stopped: its end was requested.
    """

    def __init__(self, spec: Spec, process: Process, http: str) -> None:
        self.spec = spec
        self.process = process
        self.http = http
        self.restarts = 0
        self.why = ""
        self.ended_s = 0.0
        self.silent_s: float | None = None
        self.status: Status | None = None
        self.answered = False
        self.compiles = False
        self.stopped = False
        self._polled: tuple[int | None, float] = (None, 0.0)
        self._missed_s: float | None = None

    def polled(self, pid: int, status: Status | None, now_s: float) -> None:
        """Takes the answer of a process to the newest request of its status; None for no answer.

        Args:
            pid: of the process that was queried.
            now_s: seconds since the epoch.
        """
        if self._polled[0] != pid:
            self._polled, self._missed_s = (pid, now_s), None
        requested_s = self._polled[1]
        if status is not None:
            self.status, self.answered, self.compiles = status, True, False
            self.silent_s = self._missed_s = None
        elif self.answered:
            self._missed_s = self._missed_s or now_s
            if now_s - self._missed_s >= SILENT_S:
                self.status, self.silent_s = None, self._missed_s
        elif now_s - requested_s > (COMPILES_S if self.compiles else START_S):
            self.silent_s = requested_s

    @property
    def state(self) -> str:
        """State from its status; `starting` before the first, `silent` when it no longer responds; `down` or `stopped`
        without a process.
        """
        if not self.process.running:
            return "stopped" if self.stopped else "down"
        if self.status:
            return self.status.state
        return "silent" if self.answered else "starting"


def _start(unit: Unit) -> None:
    unit.compiles = unit.spec.service == "scheduler" and first_compilation.is_due(os.environ)
    unit.process.start()


class Supervisor:
    """Keeps the given services running between `start` and `stop`.

    Attributes:
        units: name -> the process and what is known of it.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        endpoints: Endpoints,
        directory: Path,
        *,
        log_level: str = "info",
        env: Mapping[str, str] | None = None,
        log_bytes: int = MAX_BYTES,
    ) -> None:
        """Prepares the processes.

        Args:
            directory: for the logs, below `logs`.
            env: added to the environment of all.
            log_bytes: a log that has grown to this is rotated.
        """
        self._log_bytes = log_bytes
        logs = directory / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        common = {
            # The code that runs is the code that supervises, wherever it was started.
            "PYTHONPATH": os.pathsep.join(
                [str(Path(cli.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
            "KOORD_LOG_LEVEL": log_level,
            **(env or {}),
        }
        self.units: dict[str, Unit] = {}
        for spec in specs:
            http = f"127.0.0.1:{free_port()}"
            own = {"KOORD_HTTP_ADDR": http, "KOORD_REPLICA": spec.name, **spec.env}
            command = spec.command or [sys.executable, "-P", "-m", "cli", "run", spec.service]
            login = variables(endpoints, spec.service, os.environ, {**common, **own})
            process = Process(spec.name, command, logs / f"{spec.name}.log", env=login)
            self.units[spec.name] = Unit(spec, process, http)
        self._keepers: list[asyncio.Task[None]] = []
        self._pollers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Starts all services at once; they are not ready when this returns."""
        for unit in self.units.values():
            _start(unit)
        self._keepers = [asyncio.create_task(self._keep(unit)) for unit in self.units.values()]
        self._pollers = [asyncio.create_task(self._poll())]

    async def stop(self) -> None:
        """Asks all to drain, waits for them, and kills those that run after 15 s."""
        await cancel_and_wait(*self._keepers)
        running = [unit.process for unit in self.units.values() if unit.process.running]
        for unit in self.units.values():
            unit.stopped = True
        for process in running:
            process.request_exit()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await asyncio.gather(*(process.ended() for process in running))
        for process in running:
            process.kill()
        await cancel_and_wait(*self._pollers)

    def kill_all(self) -> None:
        """Ends all at once, without draining."""
        for keeper in self._keepers:
            keeper.cancel()
        for unit in self.units.values():
            unit.process.kill()

    def kill(self, name: str) -> None:
        """SIGKILL one of them; it is started again after its backoff."""
        self.units[name].process.kill()

    async def changed(self, timeout_s: float) -> None:
        """Waits until a service ended, started or changed its status, for `timeout_s` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        self._changed.clear()

    def describe(self) -> str:
        """Returns the state of each service, the reason of its last end, and its log file: for an error's text."""
        units = self.units.values()
        found = "; ".join(f"{unit.spec.name} is {unit.state}{unit.why and f' ({unit.why})'}" for unit in units)
        return f"{found}; their logs are in {next(iter(units)).process.log.parent}"

    async def wait_until(self, condition: Callable[[Unit], bool], timeout_s: float, what: str) -> None:
        """Waits until `condition` holds for every unit.

        Raises:
            NotReady: it does not after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not all(condition(unit) for unit in self.units.values()):
            if time.monotonic() > deadline:
                raise NotReady(f"services are not {what} after {timeout_s:g} s: {self.describe()}")
            await asyncio.sleep(0.05)

    async def wait_leading(self, timeout_s: float = 30) -> None:
        """Waits until each service has a replica that leads.

        Raises:
            NotReady: with what each service is doing instead.
        """

        def led(unit: Unit) -> bool:
            return any(
                other.state == "leading" for other in self.units.values() if other.spec.service == unit.spec.service
            )

        await self.wait_until(led, timeout_s, "leading")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self.stop()

    async def _keep(self, unit: Unit) -> None:
        delay_s = 0.0
        while True:
            started = time.monotonic()
            wrote = unit.process.log.stat().st_size
            await unit.process.ended()
            lived_s = time.monotonic() - started
            unit.status, unit.answered = None, False
            unit.ended_s, unit.silent_s, unit.compiles = time.time(), None, False
            unit.why = why_it_ended(unit.process.exit_code, _written_since(unit.process.log, wrote))
            self._changed.set()
            delay_s = next_delay(delay_s, lived_s)
            await asyncio.sleep(delay_s)
            _start(unit)
            unit.restarts += 1
            self._changed.set()

    async def _poll(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
            while True:
                await asyncio.gather(*(self._poll_status(session, unit) for unit in self.units.values()))
                for unit in self.units.values():
                    await asyncio.to_thread(rotate, unit.process.log, self._log_bytes)
                self._changed.set()
                await asyncio.sleep(POLL_INTERVAL_S)

    async def _poll_status(self, session: aiohttp.ClientSession, unit: Unit) -> None:
        polled = unit.process.pid
        status: Status | None = None
        try:
            async with session.get(f"http://{unit.http}/statusz") as answer:
                status = msgspec.json.decode(await answer.read(), type=Status)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            pass
        if polled is not None and unit.process.pid == polled:  # else the status is of an earlier process
            unit.polled(polled, status, time.time())


def _written_since(log: Path, offset: int) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        begin = offset if offset <= size else 0  # rotated since, if it is smaller
        file.seek(max(begin, size - _TAIL_BYTES))
        if size - _TAIL_BYTES > begin:
            file.readline()  # the rest of a line whose begin is left out
        return file.read().decode(errors="replace")
