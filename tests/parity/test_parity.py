"""Our answers against upstream's, on recorded cases. KOORD_VECTORS names another folder of the same files."""

import os
import re
from pathlib import Path

import pytest

from cli.parity.domain import DOMAINS, load
from cli.parity.tally import tally_file

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("KOORD_SHARED") or ROOT.parent / "shared")
VECTORS = Path(os.environ.get("KOORD_VECTORS") or SHARED / "vectors")


@pytest.mark.parametrize("name", DOMAINS)
def test_our_answers_are_upstreams(name: str) -> None:
    path = VECTORS / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path}; KOORD_VECTORS names the folder of recorded cases")
    tally = tally_file(path, load(name))
    assert tally.holds, tally
    assert tally.cases > 0


@pytest.mark.parametrize("name", DOMAINS)
def test_every_documented_difference_has_its_reason_in_the_documentation(name: str) -> None:
    headings = re.findall(r"^### (.+)$", (ROOT / "docs/compat.md").read_text(), re.MULTILINE)
    assert {rule.section for rule in load(name).rules} <= set(headings)
