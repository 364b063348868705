"""Recorded cases of upstream: all of them where this machine has them, else those in the repository."""

import os
from collections.abc import Iterator
from pathlib import Path

from cli.parity.run_cases import Case, case_file, read_cases

ROOT = Path(__file__).resolve().parents[2]
VECTORS = Path(
    os.environ.get("KOORD_VECTORS") or Path(os.environ.get("KOORD_SHARED") or ROOT.parent / "shared") / "vectors"
)


def recorded(domain: str, op: str) -> Iterator[Case]:
    """Yields the cases of one op."""
    path = case_file(VECTORS, domain) or case_file(ROOT / "tests/parity/cases", domain)
    assert path is not None
    return (case for case in read_cases(path) if case.op == op)
