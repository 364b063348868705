"""Tables on a terminal: sentences are broken to fit, names and numbers never."""

import sys

import click
import pytest

from cli.terminal.output import show_table

QUOTA = ("koordinator-default-quota", "memory", "32Gi", "unlimited", "760Gi")
REASON = "NodeResourcesFit: Insufficient kubernetes.io/batch-cpu (3 of 3 nodes); ElasticQuota: Insufficient quotas"


def printed(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *row: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_table([f"title {number}" for number in range(len(row))], [row], right=("title 2",))
    return [click.unstyle(line).rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_cell_is_cut_on_a_terminal_of_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, line = printed(columns, monkeypatch, capsys, *QUOTA)
    assert line.split() == list(QUOTA)


def test_a_sentence_is_broken_where_the_rest_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(80, monkeypatch, capsys, "shop", "web-0", REASON)
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[1:]).split()) == f"shop web-0 {REASON}"
