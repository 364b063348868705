"""Namespaces in which a node's programs run, so that nothing of them outlives it: not a container, not a mount.

The first process of a PID namespace takes all others with it, and the last of a mount namespace its mounts. That first
process dies with ours. Directories that programs insist on are shadowed by empty ones, so the machine's own stay as
they are.
"""

import os
import select
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.processes.child_process import Process
from shared.errors import KoordError

ENDS_WITHIN_S = 30.0

# A shell that waits reaps what is left to it, as the first process of a PID namespace must.
_FIRST = """\
set -e
{mounts}
touch {ready}
while :; do sleep 3600 & wait $!; done
"""


class NotEnded(KoordError):
    """Processes of a node survived SIGKILL; the kernel holds them."""


class Space:
    """A mount and a PID namespace.

    Attributes:
        folder: of its own, for logs.
    """

    def __init__(self, folder: Path, mounts: Mapping[Path, Path | None]) -> None:
        """Prepares one.

        Args:
            mounts: place -> the folder that programs see there, or None for an empty one; places that are not there are
                made, and taken away at the end.
        """
        self.folder = folder
        self._mounts = mounts
        self._made: list[Path] = []
        self._ready = folder / "space-is-ready"
        self._keeper = Process("node-space", self._command(), folder / "space.log")
        self._first = 0
        self._processes: list[Process] = []

    def start(self) -> None:
        """Makes it.

        Raises:
            ProgramFailed: with the output of `unshare` or `mount`.
        """
        for place in self._mounts:
            self._make(place)
        self._ready.unlink(missing_ok=True)
        self._keeper.start()
        self._keeper.wait_until(self._ready.exists, 10)
        keeper = self._keeper.pid
        (child,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        self._first = int(child)

    def process(self, name: str, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> Process:
        """A program in it, not started yet. It ends with the namespace; `stop` ends only what looks after it."""
        enter = ["nsenter", f"--target={self._first}", "--mount", "--pid", "--"]
        self._processes.append(Process(name, [*_program(enter), *command], self.folder / f"{name}.log", env=env))
        return self._processes[-1]

    def stop(self) -> None:
        """Ends every process in it; returns when all are gone. Harmless when repeated.

        Raises:
            NotEnded: some are not.
        """
        if self._first:
            handle = _opened(self._first)
            self._keeper.kill()
            if handle is not None:
                try:
                    if not select.select([handle], [], [], ENDS_WITHIN_S)[0]:
                        raise NotEnded(f"processes of the node in {self.folder} do not end: look for tasks in state D")
                finally:
                    os.close(handle)
            self._first = 0
        for process in (self._keeper, *self._processes):  # what looked after those that are gone
            process.kill()
        for place in reversed(self._made):
            try:
                place.rmdir()
            except OSError:
                continue  # another has put something there meanwhile
        self._made.clear()

    def _make(self, place: Path) -> None:
        for folder in (*reversed(place.parents), place):
            if not folder.is_dir():
                folder.mkdir()
                self._made.append(folder)

    def _command(self) -> list[str]:
        lines = []
        for place, seen in self._mounts.items():
            what = "-t tmpfs tmpfs" if seen is None else f"--bind {shlex.quote(str(seen))}"
            lines.append(f"mount {what} {shlex.quote(str(place))}")
        script = _FIRST.format(mounts="\n".join(lines), ready=shlex.quote(str(self._ready)))
        flags = ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return [*_program(["unshare", *flags, "--"]), *_program(["bash", "-c", script])]


def _program(command: list[str]) -> list[str]:
    """A command with its program's whole path, which `Process` needs."""
    found = shutil.which(command[0])
    if found is None:
        raise KoordError(f"no {command[0]} on PATH: install util-linux")
    return [found, *command[1:]]


def _opened(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
