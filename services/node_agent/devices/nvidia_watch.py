"""Runs the process that calls NVIDIA's library, and keeps its newest messages. The agent never waits for it."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from services.node_agent.devices import nvml_process_messages
from services.node_agent.devices.nvidia_gpus import (
    DRIVER,
    HARMLESS_XIDS,
    NvidiaGpus,
    find_gpus,
    last_known,
    model_of,
)
from services.node_agent.devices.nvml_process_messages import (
    CardsListed,
    CriticalError,
    LibraryUnavailable,
    NvidiaCard,
    UsageSampled,
)
from services.node_agent.devices.pci_bus import PciBus
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

CARDS_INTERVAL_S = 5.0
"""Seconds between two lists of cards."""
LIMIT_BYTES = 1 << 20
"""Longest line."""


class Deadlines(msgspec.Struct, frozen=True):
    """Seconds after which something is given up.

    Attributes:
        start_s: from the start to the first line: the driver initialises cards that nobody uses.
        line_s: between two lines.
        stale_s: age of the newest list of cards from which on the library counts as not answering.
        end_s: for the process to end once it is killed; in a call that cannot be interrupted it does not.
        retry_s: until the next start; doubled up to `idle_retry_s` while no card of the node has NVIDIA's driver.
    """

    start_s: float = 60.0
    line_s: float = 15.0
    stale_s: float = 30.0
    end_s: float = 5.0
    retry_s: float = 15.0
    idle_retry_s: float = 600.0


class NvidiaWatch:
    """The GPUs of the node as NVIDIA's library reports them.

    Attributes:
        settled: the cards are known, or it is known that the library cannot list them.
        reason: why the process ended last; empty while it has listed cards since.
        usage: UUID -> processes that compute, as (pid, percent, bytes), of the newest sample.
        sampled_ns: time of that sample.
    """

    def __init__(
        self,
        command: Sequence[str],
        bus: PciBus,
        deadlines: Deadlines,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.settled = False
        self.usage: Mapping[str, tuple[tuple[int, int, int], ...]] = {}
        self.sampled_ns = 0
        self._command, self._bus, self._deadlines, self._clock_ns = tuple(command), bus, deadlines, clock_ns
        self._cards: tuple[NvidiaCard, ...] = ()
        self._driver_version = ""
        self._listed_ns = 0
        self._known: dict[str, NvidiaCard] = {}
        self._xids: dict[str, int] = {}
        self.reason = ""

    @property
    def cards(self) -> tuple[NvidiaCard, ...]:
        """The newest list of cards."""
        return self._cards

    def gpus(self) -> NvidiaGpus:
        """Returns the GPUs as devices."""
        responding = self._clock_ns() - self._listed_ns <= self._deadlines.stale_s * SECOND
        devices, faults = find_gpus(self._cards, self._known, self._bus, self._xids, responding=responding)
        return NvidiaGpus(devices, model_of(self._cards), self._driver_version, faults)

    async def run(self) -> None:
        """Keeps the process running until cancelled."""
        pause_s = self._deadlines.retry_s
        while True:
            listed_ns = self._listed_ns
            process, reason = await self._watch()
            self.settled = True
            if reason != self.reason:
                self.reason = reason
                log.warning("GPUs are not measured", extra={"why": reason})
            if process is not None:
                await self._wait_for_end(process)
            idle = self._listed_ns == listed_ns and not self._bus.bound_to(DRIVER)
            pause_s = min(2 * pause_s, self._deadlines.idle_retry_s) if idle else self._deadlines.retry_s
            await asyncio.sleep(pause_s)

    async def _watch(self) -> tuple[asyncio.subprocess.Process | None, str]:
        """Starts the process and receives its lines; returns it, killed, and the reason of the end."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, limit=LIMIT_BYTES
            )
        except OSError as error:
            return None, f"{self._command[0]} cannot be started: {error}"
        try:
            return process, await self._receive_all(process)
        finally:
            await self._kill(process)

    async def _receive_all(self, process: asyncio.subprocess.Process) -> str:
        """Receives the lines of the process; returns the reason of their end."""
        assert process.stdout is not None, "a pipe was requested"
        within_s = self._deadlines.start_s
        try:
            while True:
                async with asyncio.timeout(within_s):
                    line = await process.stdout.readline()
                if not line:
                    return "the process that calls NVIDIA's library ended"
                within_s = self._deadlines.line_s
                if reason := self._receive(line):
                    return reason
        except TimeoutError:
            return f"NVIDIA's library did not answer within {within_s:g} s"
        except ValueError:
            return f"the process that calls NVIDIA's library sent a line of more than {LIMIT_BYTES} bytes"

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        """Kills the process, and waits a while for its end."""
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadlines.end_s):
                await process.wait()

    async def _wait_for_end(self, process: asyncio.subprocess.Process) -> None:
        """Waits for the end of a killed process, which may be in a call of the driver that cannot be interrupted.

        No other one is started beside it: each would hang in the same call.
        """
        if process.returncode is None:
            log.error("NVIDIA's driver hangs: the process that called it does not end", extra={"pid": process.pid})
            await process.wait()

    def _receive(self, line: bytes) -> str:
        """Applies a message; returns the reason to end the process, empty for none."""
        try:
            message = nvml_process_messages.decode(line)
        except msgspec.MsgspecError as error:
            return f"the process that calls NVIDIA's library sent an invalid line: {error}"
        match message:
            case CardsListed(driver_version=version, cards=cards):
                self._cards, self._driver_version, self._listed_ns = cards, version, self._clock_ns()
                self._known = last_known(self._known, cards)
                self.settled, self.reason = True, ""
            case UsageSampled(uses=uses):
                self.usage, self.sampled_ns = uses, self._clock_ns()
            case CriticalError(uuid=uuid, xid=xid) if xid not in HARMLESS_XIDS:
                log.error("a GPU had a critical error", extra={"uuid": uuid or "of all cards", "xid": xid})
                self._xids.setdefault(uuid, xid)
            case LibraryUnavailable(reason=reason):
                return reason
        return ""


def nvidia_command(library: str, sample_interval_s: float) -> tuple[str, ...]:
    """Returns the command of the process that calls NVIDIA's library."""
    module = "services.node_agent.devices.nvidia_process"
    return sys.executable, "-m", module, library, f"{sample_interval_s:g}", f"{CARDS_INTERVAL_S:g}"
