"""Starts services as forks of one process that has imported everything, instead of a new interpreter for each.

A service imports for one to two seconds of a processor before it does anything, and a test run starts some three
hundred of them. A fork is a process like any other: it has its own environment, log and session, can be stopped, killed
and waited for, and dies with the test process. Programs that are not Python of this project start as usual, and so does
everything that `koord up` starts.

`install()` replaces `cli.processes.child_process.spawn`. The parent of the forks is this module, run as a program.
"""

import array
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import cli.processes.child_process
from cli.processes.child_process import Child, Process
from shared.runtime import failpoints

MODULES = ("cli", "tests.support.copier_service")
"""Programs that are started warm: `python -m MODULE ...`."""
IMPORTED = (
    "cli.commands.run",
    "shared.runtime.runner",
    "services.audit.service",
    "services.device_discovery.service",
    "services.gateway.service",
    "services.metrics_ingest.agent_actions.service",
    "services.metrics_ingest.agent_reports.service",
    "services.node_agent.service",
    "services.quota_ledger.service",
    "services.scheduler.service",
    "services.simulator.service",
    "services.slo_controller.service",
)
"""Modules that the parent of the forks imports before it forks."""

Spawn = Callable[[Process, IO[bytes]], Child]

_CONTROL = 3
"""The parent's end of the connection on which forks are requested."""
_ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


class Request(NamedTuple):
    """Parameters of a fork.

    Sent as JSON, with two descriptors: its log, and the parent's end of the fork's connection.
    """

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    death_signal: int


def install() -> None:
    """Starts this project's own programs warm from now on, in this process."""
    cli.processes.child_process.spawn = Warm(cli.processes.child_process.spawn).spawn


class Warm:
    """The client's side: requests forks from their parent, which it starts with the first request."""

    def __init__(self, cold: Spawn) -> None:
        self._cold = cold
        self._control: socket.socket | None = None
        self._parent: Child | None = None

    def spawn(self, process: Process, log: IO[bytes]) -> Child:
        """Starts a program of this project as a fork, any other one as usual."""
        found = _module_of(process.command)
        if found is None or process.user:
            return self._cold(process, log)
        module, arguments = found
        environment = dict(os.environ if process.env is None else process.env)
        request = Request(module, arguments, environment, str(Path.cwd()), int(process.death_signal))
        ours, theirs = socket.socketpair()
        with theirs:
            descriptors = array.array("i", [log.fileno(), theirs.fileno()])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
            data = json.dumps(request).encode()
            control = self._connected()
            control.sendmsg([len(data).to_bytes(4, "big")], rights)
            control.sendall(data)
        return Fork(ours)

    def _connected(self) -> socket.socket:
        if self._control is None or self._parent is None or self._parent.poll() is not None:
            self._control, theirs = socket.socketpair()
            with theirs:
                self._parent = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PARENT.format(control=_CONTROL, fd=theirs.fileno(), pid=os.getpid())],
                    cwd=_ROOT,
                    env={**os.environ, "PYTHONPATH": str(_ROOT)},
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        return self._control


_PARENT = """\
import os
os.dup2({fd}, {control})
from tests.support.warm_start import serve
serve({pid})
"""


class Fork:
    """A program that runs as a fork; the parent of the forks sends its process id and, later, its exit code.

    The parent keeps the ended process until this side has read the code and closed the connection, so that nobody else
    gets its id.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._code: int | None = None
        self._pid = int.from_bytes(_exactly(connection, 4), "big")
        # Readable from the instant of the end, when the exit code may still be on its way.
        self._end = os.pidfd_open(self._pid)
        self._reading = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id, also after the end."""
        return self._pid

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while it runs."""
        if self._code is None:
            with contextlib.suppress(TimeoutError):
                self._read(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end; returns the exit code.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout` seconds.
        """
        if self._code is None:
            try:
                self._read(timeout)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self._pid), timeout or 0) from None
        assert self._code is not None
        return self._code

    def send_signal(self, sig: int) -> None:
        """Sends a signal; does nothing after the end."""
        if self.poll() is None:
            os.kill(self._pid, sig)

    def kill(self) -> None:
        """Sends SIGKILL; does nothing after the end."""
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes what this side holds; the parent then forgets the process."""
        self._connection.close()
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _read(self, timeout: float | None) -> None:
        with self._reading:  # a supervisor may look while a test waits in another thread
            if self._code is not None:
                return
            with selectors.DefaultSelector() as ready:
                ready.register(self._end, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise TimeoutError
            data = _exactly(self._connection, 4)
            with contextlib.suppress(OSError):
                self._connection.sendall(b"r")
                _exactly(self._connection, 1)  # the process is gone, and its id free
            self.close()
            self._code = int.from_bytes(data, "big", signed=True) if data else -signal.SIGKILL  # the parent has gone


def serve(owner: int) -> None:
    """Forks on request until the connection ends; the program that this module is run as.

    Args:
        owner: the process that this one dies with.
    """
    _die_with(owner, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # all that is imported stays: a collection in a fork would copy its pages
    for name in IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    control = socket.socket(fileno=_CONTROL)
    wake_up, woken = socket.socketpair()
    wake_up.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(wake_up.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    connections: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        ready.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is woken:
                    with contextlib.suppress(BlockingIOError):
                        woken.recv(4096)
                    _report_exits(connections, ready)
                elif key.fileobj is control:
                    received = _receive(control)
                    if received is None:
                        return
                    request, log, connection = received
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        wake_up.close()
                        for other in (
                            connection,
                            *connections.values(),
                            *(each.fileobj for each in ready.get_map().values()),
                        ):
                            other.close()  # type: ignore[union-attr]  # a socket: nothing else is registered
                        ready.close()
                        _become(request, log)
                    os.close(log)
                    connections[pid] = connection
                    connection.sendall(pid.to_bytes(4, "big"))
                    _report_exits(connections, ready)  # it may have ended before it was known here
                else:  # the other side has read the exit code, or has gone
                    _forget(key.fileobj, key.data)  # type: ignore[arg-type]  # a socket: nothing else is registered
                    ready.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]  # as above


def _report_exits(connections: dict[int, socket.socket], ready: selectors.BaseSelector) -> None:
    """Sends the exit codes of those that have ended; they stay until the other side has read it."""
    for pid in list(connections):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            continue
        connection = connections.pop(pid)
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        with contextlib.suppress(OSError):
            connection.sendall(code.to_bytes(4, "big", signed=True))
        ready.register(connection, selectors.EVENT_READ, pid)


def _forget(connection: socket.socket, pid: int) -> None:
    """Frees the id of an ended process, and reports that to the other side, if it is still there."""
    os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.sendall(b"f")


def _receive(control: socket.socket) -> tuple[Request, int, socket.socket] | None:
    """Reads a request with its descriptors; None at the end of the connection."""
    length, descriptors, _, _ = socket.recv_fds(control, 4, 2)
    if not length:
        return None
    log, connection = descriptors
    size = int.from_bytes(length + _exactly(control, 4 - len(length)), "big")
    return Request(*json.loads(_exactly(control, size))), log, socket.socket(fileno=connection)


def _become(request: Request, log: int) -> None:
    """Turns this fork into the program; does not return."""
    parent = os.getppid()
    os.setsid()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    _die_with(parent, request.death_signal)
    failpoints.arm(os.environ.get("KOORD_FAILPOINT", ""))
    gc.enable()
    sys.argv = [request.module, *request.arguments]
    try:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001  as the interpreter does it
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    sys.exit(0)


def _die_with(parent: int, number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os._exit(1)


def _module_of(command: list[str]) -> tuple[str, list[str]] | None:
    """Returns module and arguments of `python [-P] -m MODULE ...` if it is one of MODULES; None for anything else."""
    if not command or command[0] != sys.executable:
        return None
    match [part for part in command[1:] if part != "-P"]:
        case ["-m", module, *arguments] if module in MODULES:
            return module, arguments
    return None


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Reads so many bytes; fewer only at the end of the connection."""
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data
