"""Runs the vendors' tools of the host, with a deadline. Source: spec/node-agent.md 6.3."""

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from shared.errors import KoordError

MAX_OUTPUT = 1 << 20
_END_WITHIN_S = 5.0


class ToolFailed(KoordError):
    """A tool did not run, or did not end with 0.

    Attributes:
        output: its output.
    """

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


class VendorFailed(KoordError):
    """The devices of a vendor cannot be listed."""


class VendorTool:
    """Tools of the host: inside its root where that is mounted, otherwise those of this system's PATH."""

    def __init__(self, host_root: Path | None, within_s: float, check: Callable[[], None] = lambda: None) -> None:
        """Prepares the runs.

        Args:
            host_root: root of the host, into which `chroot` goes; None: the daemon runs on the host itself.
            within_s: seconds until a tool is killed.
            check: called before each run; raises where the daemon has to end.
        """
        self._prefix = () if host_root is None else ("chroot", str(host_root))
        self._within_s, self._check = within_s, check

    def run(self, *command: str) -> str:
        """Returns what a tool prints on both of its outputs.

        Raises:
            ToolFailed: it cannot be started, ends with another status than 0, or does not end in time. One in a call of
                its driver that cannot be interrupted is left behind.
        """
        self._check()
        text = " ".join(command)
        try:
            started = subprocess.Popen(  # noqa: S603  names of tools are constants, arguments are numbers of devices
                [*self._prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise ToolFailed(f"`{text}` cannot be started: {error}") from error
        try:
            printed, _ = started.communicate(timeout=self._within_s)
        except subprocess.TimeoutExpired as error:
            started.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.communicate(timeout=_END_WITHIN_S)
            raise ToolFailed(f"`{text}` did not end within {self._within_s:g} s") from error
        output = printed[:MAX_OUTPUT].decode(errors="replace")
        if started.returncode:
            raise ToolFailed(f"`{text}` ended with {started.returncode}: {output.strip()[:200]}", output)
        return output


def last_word(line: str) -> str:
    """Returns the value at the end of a line `name : value`; empty for an empty line."""
    return (line.split() or [""])[-1]


def number(text: str, what: str) -> int:
    """Returns a count that a tool printed.

    Raises:
        VendorFailed: it is not one, or not a plausible one.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise VendorFailed(f"{what} is {text!r}; a number was expected")
    return int(text)
