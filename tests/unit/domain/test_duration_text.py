"""Durations are written as Go writes them, and read back as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube.instants import SECOND, duration_ns, duration_text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1500, "1.5µs"),
        (300_000_000, "300ms"),
        (1_500_000_000, "1.5s"),
        (300 * SECOND, "5m0s"),
        (5400 * SECOND, "1h30m0s"),
        (-300 * SECOND, "-5m0s"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(ns: int, text: str) -> None:
    assert duration_text(ns) == text


@given(st.integers(-(2**62), 2**62))
def test_a_written_duration_can_be_read(ns: int) -> None:
    assert duration_ns(duration_text(ns)) == ns
