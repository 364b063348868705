"""Amounts of objects that anybody may have written."""

import pytest

from cli.terminal.amounts import exact_amount, human_amount, readable_amounts


def test_an_amount_that_cannot_be_read_is_left_out_and_hides_no_other() -> None:
    assert readable_amounts({"memory": "1Gi", "cpu": "1500m", "example.com/x": "much"}) == {
        "cpu": 1500, "memory": 2**30,
    }  # fmt: skip
    assert readable_amounts(None) == {}


@pytest.mark.parametrize(
    ("resource", "size", "text"),
    [
        ("memory", 3 * 2**29, "1.5Gi"),
        ("ephemeral-storage", 2**40, "1Ti"),
        ("hugepages-2Mi", 2**31, "2Gi"),
        ("kubernetes.io/batch-memory", 2**30, "1Gi"),
        ("koordinator.sh/gpu-memory", 320 * 2**30, "320Gi"),
        ("kubernetes.io/gpu-memory", 40 * 2**30, "40Gi"),
        ("koordinator.sh/gpu-memory-ratio", 400, "400"),
        ("volcano.sh/gpu-memory", 2048, "2048"),
    ],
)
def test_amounts_of_bytes_are_in_ki_mi_gi_and_those_of_unknown_units_are_not(
    resource: str, size: int, text: str
) -> None:
    assert human_amount(resource, size) == text


@pytest.mark.parametrize(
    ("resource", "size", "text"),
    [
        ("memory", 3 * 2**29, "1536Mi"),
        ("kubernetes.io/batch-memory", 5 * 2**30, "5Gi"),
        ("koordinator.sh/gpu-memory", 80 * 2**30, "80Gi"),
        ("kubernetes.io/batch-memory", 2**30 + 1, "1073741825"),
        ("kubernetes.io/batch-cpu", 4000, "4000"),
        ("cpu", 2**63 - 1, "unlimited"),
    ],
)
def test_amounts_of_sums_are_exact_and_bytes_in_their_largest_whole_unit(resource: str, size: int, text: str) -> None:
    assert exact_amount(resource, size) == text
