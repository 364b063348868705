"""The tests that docs/fault-simulation.md names for each fault exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "fault-simulation.md"


def test_the_tests_of_each_fault_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", DOCUMENT.read_text())
    assert len(named) > 20
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (TESTS / file).read_text()]
    assert missing == []
