"""The files that take longest run first; each of the list is there."""

from pathlib import Path

from tests.support.slow_files_first import LONGEST_FIRST

TESTS = Path(__file__).parents[2]


def test_every_file_of_the_list_exists_once() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
