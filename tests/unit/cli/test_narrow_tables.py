"""Tables on a terminal: sentences are broken to fit, names and numbers never."""

import sys
from pathlib import Path

import click
import pytest

from cli.commands.events import show_piece
from cli.main import main
from cli.terminal.output import show, show_lines, show_table

QUOTA = ("koordinator-default-quota", "memory", "32Gi", "unlimited", "760Gi")
REASON = "NodeResourcesFit: Insufficient kubernetes.io/batch-cpu (3 of 3 nodes); ElasticQuota: Insufficient quotas"
LONG_EVENT = ("2026-11-27T20:40:30.033Z", "scheduling/22", "PodPlaced", "default/batch-00017", "cluster/51", "x" * 300)


def printed(columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *row: str) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_table([f"title {number}" for number in range(len(row))], [row], right=("title 2",))
    return [click.unstyle(line).rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_cell_is_cut_on_a_terminal_of_any_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, *lines = printed(columns, monkeypatch, capsys, *QUOTA)
    words = " ".join(lines).replace(";", "").split()
    assert [word for word in words if word != "title" and not word.endswith(":")] == list(QUOTA)


def test_a_sentence_is_broken_where_the_rest_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(80, monkeypatch, capsys, "shop", "web-0", REASON)
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[1:]).split()) == f"shop web-0 {REASON}"


def test_what_does_not_fit_beside_a_row_is_below_it_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`koord pending` and `koord get quotas` printed lines of 176 characters on a terminal of 80."""
    row = ("default", "1", "too-large-for-any-node", "1 m 12 s", "team-a-with-a-long-name", "-", REASON)
    lines = printed(80, monkeypatch, capsys, *row)
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == [*row[:3], *row[3].split(), row[4]]
    assert " ".join(" ".join(lines[2:]).split()) == f"title 6: {REASON}"


def test_two_sentences_beside_short_columns_are_broken_on_a_wide_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`koord get configs` with a rejected ConfigMap printed lines of 400 characters."""
    source = "ConfigMap koordinator-system/slo-controller-config"
    row = ("scheduling", source, "66737cd9ade7", "2026-11-27T20:49:27Z", "-", f"{source}: {REASON}")
    lines = printed(120, monkeypatch, capsys, *row)
    assert max(map(len, lines)) <= 120


def test_a_long_line_is_broken_between_words_and_its_rest_indented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    line = "  -> node-1: 660 (TaintToleration 300, NodeResourcesFit 90, LoadAwareScheduling 87)"
    show_lines([line, "short"])
    first, *rest, last = capsys.readouterr().out.splitlines()
    assert (len(first) <= 60, last) == (True, "short")
    assert all(each.startswith(" " * 6) and len(each) <= 60 for each in rest)
    assert " ".join([first, *map(str.strip, rest)]) == line


def test_an_error_of_usage_fits_into_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "argv", ["koord", "get", "pods", "-o", "foo"])
    with pytest.raises(SystemExit, match="2"):
        main()
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 80
    assert "Try 'koord get pods --help' for help." in lines
    assert "is none of table, wide, name, json, yaml," in " ".join(map(str.strip, lines))


def test_a_fault_of_a_configuration_fits_into_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"kind: KubeSchedulerConfiguration\napiVersion: kubescheduler.config.k8s.io/v1\n{'x' * 50}: 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys, "argv", ["koord", "config", "check", file.name])
    with pytest.raises(SystemExit, match="1"):
        main()
    lines = capsys.readouterr().out.splitlines()
    assert lines
    assert max(map(len, lines)) <= 80


def test_a_path_without_a_value_is_noted_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """`-o jsonpath={.items[*].name}` printed nothing: the list has no `items`."""
    show([{"name": "a"}], "jsonpath={.items[*].name}")
    out, err = capsys.readouterr()
    assert (out, "{.items[*].name}" in err, "-o json" in err) == ("", True, True)
    show([{"name": "a"}], "jsonpath=[*].name")
    assert capsys.readouterr() == ("a\n", "")


def test_a_line_whose_rest_has_a_long_name_begins_at_the_left_where_the_name_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step of `koord why eviction` was 92 characters long: 45 columns, and the name of a job."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    job = "drain-3-61ffb8e2-d5ea-42df-9130-b9c94f256445-1"
    show_lines([f"2026-11-28T05:13:37.254Z  descheduling/33    PodMigrationJob {job} moved it"])
    first, rest = capsys.readouterr().out.splitlines()
    assert rest == f"    {job} moved it"
    assert first.endswith("PodMigrationJob")


def test_a_short_command_in_a_line_is_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_lines(["Its quota has room for it; if it waits, then by: `koord why pod`."])
    assert capsys.readouterr().out.splitlines()[1] == "    `koord why pod`."


def test_a_line_that_is_not_for_a_terminal_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show_lines(["word " * 100])
    assert capsys.readouterr().out == "word " * 100 + "\n"


def test_the_data_of_events_end_where_a_usual_terminal_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_piece([LONG_EVENT], "table", header=True)
    assert max(map(len, click.unstyle(capsys.readouterr().out).splitlines())) <= 120


def test_data_of_events_that_have_no_room_beside_the_other_columns_are_on_a_line_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal of 80 columns there were 12 characters of them: `data: {"pod_uid":…`."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_piece([LONG_EVENT], "table", header=False)
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].strip() == "x" * 69 + "…"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_long_name_is_never_cut(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`koord events` printed `koordinator-system/koordstream-checkp…`."""
    name = "koordinator-system/koordstream-checkpoint"
    lines = printed(columns, monkeypatch, capsys, "2026-11-27T21:33:59.689Z", "DesiredStateApplied", "x", name, REASON)
    assert name in "".join(lines)


def test_the_rest_of_a_row_begins_below_its_last_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_lines(["default/train-0  pending  -     Coscheduling: pod default/train-3, which is placed together"])
    assert capsys.readouterr().out.splitlines() == [
        "default/train-0  pending  -     Coscheduling: pod",
        "                                default/train-3, which is",
        "                                placed together",
    ]
