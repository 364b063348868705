"""A run fails on a skip that its list does not allow, and on no other."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.allowed_skips import VARIABLE

ROOT = Path(__file__).parents[3]
SKIPS = """
import pytest

def test_runs() -> None:
    assert True

def test_needs_a_shell() -> None:
    pytest.skip("no zsh on this machine")

@pytest.mark.skipif(True, reason="no kernel feature (of 7.0)")
def test_needs_a_kernel() -> None:
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("allowed", "code", "complaints"),
    [
        ("no (zsh|fish)\nno kernel feature", 0, []),
        ("# only shells\nno zsh on this machine  # not installed in CI\n", 1, ["no kernel feature (of 7.0)"]),
        ("", 1, ["no zsh on this machine", "no kernel feature (of 7.0)"]),
    ],
)
def test_a_skip_that_the_list_does_not_allow_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str, code: int, complaints: list[str]
) -> None:
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "allowed").write_text(allowed)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "allowed"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.allowed_skips", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", tmp_path, "-c", "/dev/null", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout
    found = [line.partition("does not allow: ")[2] for line in done.stdout.splitlines() if "does not allow" in line]
    assert found == complaints
