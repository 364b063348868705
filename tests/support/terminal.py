"""A command on a terminal of its own: the text on the screen, and the keys that a person would press."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Self

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CTRL_C = b"\x03"


class Terminal:
    """Runs `koord` with these arguments on a terminal of 120 columns; killed at the end of the block."""

    def __init__(
        self, arguments: Sequence[str], env: Mapping[str, str] | None = None, program: Sequence[str] = ("-m", "cli")
    ) -> None:
        """Starts the command; `program` are the arguments by which Python runs `koord`."""
        self._keyboard, screen = pty.openpty()
        # A session with this terminal as its own, so that Ctrl-C becomes a signal as it does for a person.
        self.process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40", **(env or {})},
            start_new_session=True,
            preexec_fn=take_terminal,  # noqa: PLW1509  the child does two system calls and then is another program
        )
        os.close(screen)
        self.seen = ""

    def press(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def wait_for(self, pattern: str, timeout_s: float = 240) -> re.Match[str]:
        """Reads until the output since the last match contains `pattern`; the output up to the match is dropped."""
        deadline = time.monotonic() + timeout_s
        while not (match := re.search(pattern, self.seen)):
            assert time.monotonic() < deadline, f"{pattern!r} does not come; the screen ends with:\n{self.seen[-3000:]}"
            if select.select([self._keyboard], [], [], 0.1)[0]:
                self._read()
        self.seen = self.seen[match.end() :]
        return match

    def wait_for_end(self, timeout_s: float = 240) -> int:
        """Returns the exit code; continues to read, since a full terminal would block the command."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.seen[-3000:]
            if select.select([self._keyboard], [], [], 0.1)[0]:
                self._read()
        while select.select([self._keyboard], [], [], 0)[0] and self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        try:
            data = os.read(self._keyboard, 65_536)
        except OSError:  # Linux returns EIO once no process has the other side open
            data = b""
        self.seen += _ESCAPES.sub("", data.decode(errors="replace"))
        if not data:
            time.sleep(0.05)
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self._keyboard)


def take_terminal() -> None:
    """Makes stdin the terminal of this session."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
