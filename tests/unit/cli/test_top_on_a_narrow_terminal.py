"""`koord top` on terminals of several widths: columns are left out, numbers are whole."""

import io

import pytest
from rich.console import Console

from cli.top.summary import ContextRow, ServiceRow, Summary
from cli.top.table import rendered

EPOCH, HEAD, OLDEST = 1_764_000_000_123, 1_234_567, 1_200_001
SERVICES = [
    ServiceRow(name, name, state, EPOCH, 7_384.0, 12.3, 345 * 2**20, 4_321, 1_234.0)
    for name, state in (("metrics-ingest", "leading"), ("slo-controller", "waiting-for-lock"), ("scheduler", "silent"))
]
CONTEXTS = [
    ContextRow(name, HEAD, 1_234.0, f"{by}@{by}", True, {"quota-ledger": 12_345, "scheduler": 678}, OLDEST, 12, 3 * 2**30)
    for name, by in (("scheduling", "scheduler"), ("slo", "slo-controller"))
]  # fmt: skip
SUMMARY = Summary(0, SERVICES, CONTEXTS, {"url": "nats://127.0.0.1:4222", "connected": False}, [])


def printed(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(rendered(SUMMARY, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_number_is_broken_over_lines_or_cut(width: int) -> None:
    lines = printed(width)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    assert "…" not in text
    for column, value, times in (
        ("epoch", str(EPOCH), 3), ("rss", "345 MiB", 3), ("up", "2 h 3 m", 3), ("head", "1,234,567", 2),
        ("oldest", "1,200,001", 2), ("lag", " 4,321", 3), ("cpu", "12.3 %", 3),
    ):  # fmt: skip
        is_shown = any(column in line.split() for line in (lines[0], lines[5]))
        assert (is_shown, text.count(value)) in ((True, times), (False, 0)), column


def test_at_80_columns_the_columns_that_are_left_out_are_named() -> None:
    [line] = [line for line in printed(80) if "columns" in line]
    assert line.strip() == "80 columns: without epoch, up, rss, partitions, oldest"
    assert not [line for line in printed(200) if "columns" in line]
