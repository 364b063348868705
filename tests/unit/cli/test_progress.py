"""The bar of commands that read much of a log: on a terminal, and where there is time to see it."""

import io
import sys

import pytest

from cli.terminal.progress import SHORT, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stderr", "events", "is_shown"),
    [(Terminal(), 10 * SHORT, True), (Terminal(), SHORT, False), (io.StringIO(), 10 * SHORT, False)],
)
def test_a_bar_is_shown_on_a_terminal_for_a_long_read(
    stderr: io.StringIO, events: int, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress("verifying the log", events) as advance:
        advance(events)
    assert ("100%" in stderr.getvalue()) == is_shown
    assert ("verifying the log" in stderr.getvalue()) == is_shown
