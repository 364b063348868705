"""Output of `koord get quotas`, on a terminal and in a pipe."""

import pytest

from cli.quota import live_tree, render
from cli.terminal.amounts import UNLIMITED
from services.quota_ledger.explain.quota_overview import OverviewRow


def line(**numbers: int | None) -> OverviewRow:
    fields = {"min": 0, "max": 100, "runtime": 0, "used": 0, "borrowed": 0, "lent": 0, "waiting": 0} | numbers
    return OverviewRow(tree="", quota="web", parent="", depth=1, resource="example.com/chip", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "bar"),
    [
        (line(runtime=50, used=25), "█████▒▒▒▒▒··········"),
        (line(runtime=50, used=75), "██████████▓▓▓▓▓·····"),
        (line(runtime=100, used=100), "████████████████████"),
        (line(max=None, runtime=10, used=5), "██████████▒▒▒▒▒▒▒▒▒▒"),
        (line(runtime=0, used=0, max=0), ""),
        (line(runtime=50, used=0), "▒▒▒▒▒▒▒▒▒▒··········"),
        (line(max=100_000, runtime=1, used=0), "▒···················"),
        (line(max=1_000, runtime=1_000, used=1_001), "███████████████████▓"),
        (line(max=1_000, runtime=500, used=501), "██████████▓·········"),
    ],
)
def test_a_bar_shows_what_is_used_free_over_used_and_beyond(of: OverviewRow, bar: str) -> None:
    assert render.bar(of) == bar


def test_the_whole_of_a_tree_comes_first_and_children_are_indented() -> None:
    whole = OverviewRow("gpu", "koordinator-root-quota", "", 0, "cpu", 9_000, None, 10_000, 0, 0, 0, 0)
    child = OverviewRow("gpu", "web", "koordinator-root-quota", 1, "cpu", 1_000, 5_000, 1_000, 0, 0, 0, 0)
    assert [row[:5] for row in render.rows([whole, child])] == [
        ("tree gpu", "cpu", "9", "-", "10"),
        ("  web", "cpu", "1", "5", "1"),
    ]


def test_watching_shows_the_tree_again_until_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [[line(used=1)], [line(used=2)]]

    def found() -> list[OverviewRow]:
        if not looks:
            raise KeyboardInterrupt
        return looks.pop(0)

    monkeypatch.setattr(live_tree, "INTERVAL_S", 0)
    with pytest.raises(KeyboardInterrupt):
        live_tree.watch(found, "table")
    shown = [text.split() for text in capsys.readouterr().out.splitlines() if "chip" in text]
    assert [words[5] for words in shown] == ["1", "2"]


@pytest.mark.parametrize(
    ("of", "is_explained"), [(line(max=UNLIMITED, runtime=UNLIMITED), False), (line(runtime=50), True)]
)
def test_bars_are_explained_where_there_are_any(
    of: OverviewRow, is_explained: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    live_tree.draw([of])
    assert ("used beyond the runtime" in capsys.readouterr().out) == is_explained
