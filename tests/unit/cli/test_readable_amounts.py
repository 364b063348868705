"""Amounts of objects that anybody may have written."""

from cli.terminal.amounts import readable_amounts


def test_an_amount_that_cannot_be_read_is_left_out_and_hides_no_other() -> None:
    assert readable_amounts({"memory": "1Gi", "cpu": "1500m", "example.com/x": "much"}) == {
        "cpu": 1500, "memory": 2**30,
    }  # fmt: skip
    assert readable_amounts(None) == {}
