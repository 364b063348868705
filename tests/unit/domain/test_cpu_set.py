"""Lists of CPUs as the kernel writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus


@given(st.frozensets(st.integers(0, 65536)))
def test_a_set_is_read_back_as_it_was_written(cpus: frozenset[int]) -> None:
    assert parse_cpus(cpu_list(cpus)) == cpus


@pytest.mark.parametrize(
    "text", ["1,", ",1", "a", "1-", "-1", " 1", "1--2", "0-4097", "0x10", "٣", "99999999999999999999"]
)
def test_an_invalid_list_is_rejected(text: str) -> None:
    with pytest.raises(BadCpuList):
        parse_cpus(text)


def test_neighbours_are_joined_and_a_backward_range_is_empty() -> None:
    assert cpu_list([8, 1, 0, 3, 2]) == "0-3,8"
    assert parse_cpus("3-0") == frozenset()
    assert parse_cpus("+3,07") == {3, 7}


def test_neighbours_above_4096_are_written_one_by_one() -> None:
    assert cpu_list(range(4094, 4099)) == "4094-4096,4097,4098"


@pytest.mark.parametrize(
    ("text", "count"), [("4095-4096", 2), ("0-4096", 4097), ("4097", 1), ("5000,1", 2), ("4097-0", 0)]
)
def test_a_range_ends_at_4096_at_most_and_a_single_number_may_be_larger(text: str, count: int) -> None:
    assert len(parse_cpus(text)) == count


@pytest.mark.parametrize("text", ["0-4097", "4096-4097", "4097-4097", "5000-4097", "1,4090-4097"])
def test_a_range_that_ends_above_4096_is_no_list(text: str) -> None:
    with pytest.raises(BadCpuList):
        parse_cpus(text)
