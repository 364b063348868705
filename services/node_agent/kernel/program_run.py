"""Runs a program of the node, such as `tc` or `ip`, to its end."""

import subprocess
from typing import NamedTuple

RUNS_FOR_S = 5.0
MOST_FAILURES = 100


class ProgramResult(NamedTuple):
    """The end of a program.

    Attributes:
        output: its standard output; of one that failed, too.
        failure: why it failed, on one line; empty where it succeeded.
    """

    output: str = ""
    failure: str = ""


def run_program(words: tuple[str, ...], given: str = "", runs_for_s: float = RUNS_FOR_S) -> ProgramResult:
    """Returns the result of a program; one that is not installed, or takes too long, has failed.

    Args:
        words: the program and its arguments; names of interfaces and numbers, never text of a tenant.
        given: its standard input.
    """
    try:
        done = subprocess.run(  # noqa: S603  words are the callers' own
            words, input=given, capture_output=True, text=True, errors="replace", timeout=runs_for_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return ProgramResult(failure=f"{words[0]} cannot be run: {error}")
    if not done.returncode:
        return ProgramResult(done.stdout)
    why = " ".join(done.stderr.split()) or f"it ended with status {done.returncode}"
    return ProgramResult(done.stdout, f"{' '.join(words)}: {why}")


class LoggedFailures:
    """The failures that were logged, so that each is logged once. Their texts name processes and interfaces of pods that
    come and go: the oldest is forgotten beyond MOST_FAILURES.
    """

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def is_new(self, text: str) -> bool:
        """Reports whether a failure has not been logged yet, and notes it."""
        if text in self._texts:
            return False
        self._texts[text] = None
        if len(self._texts) > MOST_FAILURES:
            del self._texts[next(iter(self._texts))]
        return True
