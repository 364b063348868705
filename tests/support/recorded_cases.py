"""Recorded cases of upstream's, when this machine has them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.parity.tally import Case, read_cases

ROOT = Path(__file__).resolve().parents[2]
VECTORS = Path(
    os.environ.get("KOORD_VECTORS") or Path(os.environ.get("KOORD_SHARED") or ROOT.parent / "shared") / "vectors"
)


def recorded(domain: str, op: str) -> Iterator[Case]:
    """The cases of one op; skips the test without the file."""
    path = VECTORS / f"{domain}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}; KOORD_VECTORS names the folder of recorded cases")
    return (case for case in read_cases(path) if case.op == op)
