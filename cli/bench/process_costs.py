"""Cpu and memory of the processes of a benchmark, as the kernel counts them."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.processes.child_process import Process


class Servers(NamedTuple):
    """The processes that are measured."""

    service: Process
    postgres: EmbeddedPostgres
    nats: EmbeddedNats

    def cpu_s(self) -> tuple[float, float, float]:
        """Returns the cpu seconds of each since its start."""
        return cpu_s(self.service.pid), cpu_s(self.postgres.pid), cpu_s(self.nats.process.pid)


def cpu_s(pid: int | None) -> float:
    """Returns cpu seconds of a process, of those that it has ended, and of those below it."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    used = float(times.user + times.system + times.children_user + times.children_system)
    for child in process.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            used += cpu_s(child.pid)
    return used


def peak_bytes(process: Process) -> int:
    """Returns the largest resident memory of a process so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


async def obey(pipe: Connection, work: Callable[[str, Any], Awaitable[Any]]) -> None:
    """Replies to the commands of `reply`, in the process at the other end, until None comes."""
    while (command := await asyncio.to_thread(pipe.recv)) is not None:
        pipe.send(await work(*command))


async def reply(pipe: Connection, command: tuple[str, float]) -> Any:
    """Sends a command to a process; returns its reply."""
    pipe.send(command)
    return await asyncio.to_thread(pipe.recv)
