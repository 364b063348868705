"""Runs the files that take longest first, so that no worker is left with a long file at the end.

Files are the unit that pytest-xdist hands out here (`--dist loadfile`). After a change of the long ones, renew the list from the
sums of `make test TESTS="--durations=0"`.
"""

from pathlib import PurePath

import pytest

LONGEST_FIRST: tuple[str, ...] = ()
"""Files below `tests`, the longest first. All others follow in the order of collection."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests by their file's place in the list; the order within a file does not change."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(_below_tests(item), len(places)))


def _below_tests(item: pytest.Item) -> str:
    return PurePath(item.nodeid.partition("::")[0]).as_posix().removeprefix("tests/")
