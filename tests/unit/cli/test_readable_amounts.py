"""Amounts of objects that anybody may have written."""

import pytest

from cli.terminal.amounts import human_amount, readable_amounts


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
