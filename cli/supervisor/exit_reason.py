"""The reason why a process ended, in one line: from its exit code and the end of its log."""

import re
import signal

import msgspec

_OF_GROUP = re.compile(r"^ +\| (?=\S)(?!Traceback)(.+)")
"""A line of a traceback of several errors that is no frame: one of the errors themselves."""


class _Line(msgspec.Struct):
    level: str = ""
    message: str = ""
    error: str = ""


def why_it_ended(exit_code: int | None, tail: str) -> str:
    """The signal that killed it, the last error that it logged, or the last line of a traceback.

    Args:
        exit_code: as subprocess gives it, negative for a signal.
        tail: the last lines that this process wrote.
    """
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    for text in reversed(tail.splitlines()):
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError:
            if (of_group := _OF_GROUP.match(text)) is not None:
                return of_group[1]
            if text and not text.startswith((" ", "Traceback")):
                return text  # the last line of a traceback: the error itself
            continue
        if line.level in {"error", "critical"}:
            return f"{line.error}: {line.message}" if line.error else line.message
    return "ended by itself" if exit_code == 0 else f"exit code {exit_code}"
