"""Our results against upstream's: on the cases in this repository, and on all recorded ones where KOORD_VECTORS or
../shared has them.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from cli.parity.case_domain import DOMAINS, load
from cli.parity.run_cases import Tally, case_file, opened, tally_file

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).with_name("cases")
SHARED = Path(os.environ.get("KOORD_SHARED") or ROOT.parent / "shared")
VECTORS = Path(os.environ.get("KOORD_VECTORS") or SHARED / "vectors")
FOUND = [name for name in DOMAINS if case_file(CASES / "found", name)]


def tally_of(folder: Path, name: str) -> Tally:
    """Runs the cases of a domain in a folder; there are some."""
    path = case_file(folder, name)
    assert path is not None
    tally = tally_file(path, load(name))
    assert tally.cases > 0
    return tally


@pytest.mark.parametrize("name", DOMAINS)
def test_our_answers_to_the_cases_in_the_repository_are_upstreams(name: str) -> None:
    tally = tally_of(CASES, name)
    assert tally.holds, tally


@pytest.mark.parametrize("name", FOUND)
def test_no_case_that_was_once_different_is(name: str) -> None:
    tally = tally_of(CASES / "found", name)
    assert tally.different == 0, tally


def content(path: Path) -> list[bytes]:
    with opened(path) as lines:
        return [line.strip() for line in lines]


def other_domains(folder: Path, here: Path) -> list[Any]:
    """The domains of which a folder has other cases than the repository; one that is skipped without any."""
    there = {name: path for name in DOMAINS if (path := case_file(folder, name))}
    others = [n for n, path in there.items() if (own := case_file(here, n)) is None or content(path) != content(own)]
    reason = f"{folder} has no cases that the repository lacks; KOORD_VECTORS names a folder of recorded cases"
    return others or [pytest.param("", marks=pytest.mark.skip(reason=reason))]


@pytest.mark.parametrize("name", other_domains(VECTORS, CASES))
def test_our_answers_to_other_recorded_cases_are_upstreams(name: str) -> None:
    tally = tally_of(VECTORS, name)
    assert tally.holds, tally


@pytest.mark.parametrize("name", other_domains(VECTORS / "found", CASES / "found"))
def test_no_other_case_that_was_once_different_is(name: str) -> None:
    tally = tally_of(VECTORS / "found", name)
    assert tally.different == 0, tally


@pytest.mark.parametrize("name", DOMAINS)
def test_every_documented_difference_has_its_reason_in_the_documentation(name: str) -> None:
    headings = re.findall(r"^### (.+)$", (ROOT / "docs/compat.md").read_text(), re.MULTILINE)
    assert {rule.section for rule in load(name).rules} <= set(headings)
    assert len(set(headings)) == len(headings)


def test_the_cases_in_the_repository_take_at_most_four_mebibytes() -> None:
    sizes = [path.stat().st_size for path in CASES.rglob("*") if path.is_file()]
    assert 0 < sum(sizes) <= 4 << 20
