"""A program as a child process that never outlives its parent and can be stopped in every way a fault test needs."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Protocol

from shared.errors import KoordError

# Linux kills a child when the *thread* that started it ends (PR_SET_PDEATHSIG), so one thread that lives as long as
# this process starts them all; a worker thread of an event loop would take its children with it.
_STARTER = ThreadPoolExecutor(1, "starter")

# Runs in the child before the program: changes the user where one is given (which clears a signal set earlier,
# so this comes first), requests a signal at the parent's death, and leaves if that was just now.
_DIE_WITH_PARENT = """\
import ctypes, os, sys
parent, number, user = (int(part) for part in sys.argv[1:4])
if user:
    import pwd
    entry = pwd.getpwuid(user)
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(user)
ctypes.CDLL(None).prctl(1, number)
if os.getppid() != parent:
    sys.exit(1)
os.execv(sys.argv[4], sys.argv[4:])
"""


class ProgramFailed(KoordError):
    """A program ended, or did not become ready in time; the text ends with the last lines of its log."""


class Child(Protocol):
    """A running program, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int:
        """The process id, also after the end."""

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; returns the exit code."""

    def send_signal(self, sig: int) -> None:
        """Sends a signal; does nothing after the end."""

    def kill(self) -> None:
        """Sends SIGKILL; does nothing after the end."""


def spawn(process: "Process", log: IO[bytes]) -> Child:
    """Starts a process's program, which dies with this one, with its output in `log`."""
    keeper = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT]
    keeper += [str(os.getpid()), str(int(process.death_signal)), str(process.user)]
    # A session of its own: Ctrl-C reaches the parent alone, which then stops its programs in order.
    return _STARTER.submit(
        subprocess.Popen,
        [*keeper, *process.command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=process.env,
        cwd="/" if process.user else None,  # another user may be unable to stand where this one does
        start_new_session=True,
    ).result()


class Process:
    """A program with its arguments; started and ended any number of times, always with the same arguments.

    Attributes:
        name: for messages.
        command: the program's path and its arguments.
        log: the file that receives its output, open for appending; grows over restarts until it is rotated
            (log_rotation.py).
        env: its whole environment; None is this process' own.
        user: the user id to run under; 0 keeps this process' own.
        death_signal: what the program gets when this process dies.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        user: int = 0,
        death_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.env = env
        self.user = user
        self.death_signal = death_signal
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._child.pid if self._child and self._child.poll() is None else None

    @property
    def running(self) -> bool:
        """True while the process exists (a paused one does)."""
        return self.pid is not None

    @property
    def exit_code(self) -> int | None:
        """Exit status, negative for a signal; None while it runs or before its first start."""
        return self._child.poll() if self._child else None

    def start(self) -> None:
        """Starts the program; does nothing while it runs. It is not ready yet when this returns."""
        if self.running:
            return
        with self.log.open("ab") as log:
            self._child = spawn(self, log)

    def request_exit(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends the signal, to a paused program too. It may still run when this returns."""
        if self._child:
            self._child.send_signal(signal.SIGCONT)  # a paused program would not receive it
            self._child.send_signal(number)

    def send(self, number: signal.Signals) -> None:
        """Sends it a signal that does not end it."""
        if self._child and self._child.poll() is None:
            self._child.send_signal(number)

    async def ended(self) -> None:
        """Waits until the process is gone; returns at once when it does not run."""
        pid = self.pid
        if pid is None:
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        handle = os.pidfd_open(pid)
        loop.add_reader(handle, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    def stop(self, timeout_s: float = 10, *, number: signal.Signals = signal.SIGTERM) -> None:
        """Asks it to end, and SIGKILL if it has not after `timeout_s`. Returns when the process is gone."""
        if not self._child or self._child.poll() is not None:
            return
        self.request_exit(number)
        try:
            self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL: what a lost machine looks like. Returns when the process is gone."""
        if self._child:
            self._child.kill()
            self._child.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as on a hung machine."""
        if self._child:
            self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT after `pause`."""
        if self._child:
            self._child.send_signal(signal.SIGCONT)

    def wait_until(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Polls `ready` until it is true.

        Raises:
            ProgramFailed: the program ended, or `timeout_s` passed.
        """
        deadline = time.monotonic() + timeout_s
        while not ready():
            if not self.running:
                raise ProgramFailed(f"{self.name} ended at its start; {self.log} ends with:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProgramFailed(
                    f"{self.name} is not ready after {timeout_s} s; {self.log} ends with:\n{self.tail()}"
                )
            time.sleep(0.02)

    def wait(self, timeout_s: float) -> int:
        """Waits for a program that ends by itself; its exit code.

        Raises:
            ProgramFailed: it has not ended after `timeout_s`; it is killed.
        """
        assert self._child, "started before it is waited for"
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProgramFailed(
                f"{self.name} has not ended after {timeout_s} s; {self.log} ends with:\n{self.tail()}"
            ) from None

    def tail(self, lines: int = 15) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""
