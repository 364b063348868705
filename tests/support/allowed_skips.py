"""Fails a run that skips a test for a reason that its list does not allow.

KOORD_ALLOWED_SKIPS names the list: a file with one regular expression a line, matched against the beginning of a skip's
reason; `#` begins a comment. Without it every skip is allowed. CI has such a list, so that a test which silently stops
running is noticed.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

VARIABLE = "KOORD_ALLOWED_SKIPS"


def read_allowed(path: Path) -> list[re.Pattern[str]]:
    """Reads the list; empty lines and comments are left out."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [re.compile(line) for line in lines if line]


def not_allowed(reasons: Iterable[str], allowed: Sequence[re.Pattern[str]]) -> list[str]:
    """Returns the reasons that no expression matches, each once, in their order."""
    return [reason for reason in dict.fromkeys(reasons) if not any(one.match(reason) for one in allowed)]


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Returns the text that the test gave for its skip."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the session in the process that collects all reports; workers of pytest-xdist leave it to that one."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    path = os.environ.get(VARIABLE)
    if not path or terminal is None or hasattr(session.config, "workerinput"):
        return
    reasons = (skip_reason(report) for report in terminal.stats.get("skipped", ()))
    if found := not_allowed(reasons, read_allowed(Path(path))):
        terminal.write_line("")
        for reason in found:
            terminal.write_line(f"a skip that {path} does not allow: {reason}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
