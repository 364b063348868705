"""`koord parity`: what is compared, counted and printed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.parity.case_domain import Domain, Rule
from cli.parity.command import parity
from cli.parity.compare import Difference, difference
from cli.parity.run_cases import Tally, tally_file, without


@pytest.mark.parametrize(
    ("expected", "found", "where"),
    [
        ({"a": [1, {"b": 2.0}]}, {"a": [1.0, {"b": 2}]}, None),
        ({"a": 1}, {"a": True}, Difference("a", 1, True)),
        ({"a": 0}, {"a": False}, Difference("a", 0, False)),
        ({"a": None}, {}, Difference("a", None, None)),
        ([1, 2], [1], Difference(".length", 2, 1)),
        ({"r": [{"x": 1}]}, {"r": [{"x": 2}]}, Difference("r[0].x", 1, 2)),
        ({"anyOf": [1, 2]}, 2, None),
        ({"anyOf": [1, 2]}, 3, Difference("", {"anyOf": [1, 2]}, 3)),
        ([{"anyOf": [{"a": 1}, {"a": 2}]}], [{"a": 2}], None),
        ({"anyOf": [1], "b": 2}, 1, Difference("", {"anyOf": [1], "b": 2}, 1)),
        ("1", 1, Difference("", "1", 1)),
    ],
)
def test_answers_agree_as_json_values(expected: Any, found: Any, where: Difference | None) -> None:
    assert difference(expected, found) == where


def doubled(op: str, given: Mapping[str, Any]) -> Any:
    if given["n"] < 0:
        raise ValueError("negative")
    return {"twice": 2 * given["n"]}


def cases(folder: Path, *pairs: tuple[int, int], name: str = "loadaware") -> Path:
    path = folder / f"{name}.jsonl"
    lines = ({"case": f"c{n}", "op": "double", "input": {"n": n}, "output": {"twice": out}} for n, out in pairs)
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


THREE_IS_SEVEN = Rule(
    "Three", recognises=lambda op, given: given["n"] == 3, upstream=lambda op, given: {"twice": 2 * given["n"] + 1}
)


def test_the_first_difference_is_reported_with_its_path(tmp_path: Path) -> None:
    tally = tally_file(cases(tmp_path, (1, 2), (2, 5), (3, 9)), Domain(doubled))
    assert (tally.cases, tally.equal, tally.different, tally.holds) == (3, 1, 2, False)
    assert tally.first_different is not None
    assert (tally.first_different.case, tally.first_different.path, tally.first_different.found) == ("c2", "twice", 4)


def test_a_rule_argues_a_case_only_when_it_predicts_upstreams_answer(tmp_path: Path) -> None:
    domain = Domain(doubled, (THREE_IS_SEVEN,))
    assert tally_file(cases(tmp_path, (3, 7)), domain).argued == 1
    assert tally_file(cases(tmp_path, (3, 8)), domain).different == 1


def test_more_than_two_percent_argued_does_not_hold() -> None:
    assert Tally(cases=100, equal=98, argued=2).holds
    assert not Tally(cases=100, equal=97, argued=3).holds


def test_the_share_does_not_apply_to_too_few_cases_for_one_argued_case() -> None:
    assert Tally(cases=49, argued=49).holds
    assert not Tally(cases=50, equal=48, argued=2).holds
    assert not Tally(cases=1, different=1).holds


def test_a_domain_can_allow_a_larger_share_and_prints_it(tmp_path: Path) -> None:
    tally = tally_file(cases(tmp_path, (3, 7), (1, 2)), Domain(doubled, (THREE_IS_SEVEN,), argued_share=0.5))
    assert (tally.argued, tally.argued_share, tally.holds) == (1, 0.5, True)


def test_a_case_that_our_code_cannot_take_is_a_difference(tmp_path: Path) -> None:
    tally = tally_file(cases(tmp_path, (-1, 0), (1, 2)), Domain(doubled))
    assert (tally.equal, tally.different) == (1, 1)
    assert tally.first_different is not None
    assert tally.first_different.found == "ValueError: negative"


@pytest.fixture
def estimates(tmp_path: Path) -> Path:
    requested = {"args": {}, "node": {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2"}}}}
    reported = {"allocatable": {"cpu": 2000, "memory": 0}}
    case = {"case": "x", "op": "estimate_node", "input": requested, "output": reported}
    (tmp_path / "loadaware.jsonl").write_text(json.dumps(case) + "\n")
    return tmp_path


def test_the_json_form_is_one_object_by_domain(estimates: Path) -> None:
    result = CliRunner().invoke(parity, [str(estimates), "--json"])
    assert result.exit_code == 0
    counts: dict[str, Any] = {"cases": 1, "equal": 1, "argued": 0, "crashes": 0, "different": 0}
    counts |= {"argued_share": 0.02, "first_different": None}
    assert json.loads(result.stdout) == {"loadaware": counts}


def test_a_difference_ends_with_1_and_is_printed(estimates: Path) -> None:
    path = estimates / "loadaware.jsonl"
    path.write_text(path.read_text().replace("2000", "1999"))
    result = CliRunner().invoke(parity, [str(estimates)])
    assert result.exit_code == 1
    assert "x (estimate_node) differs at allocatable.cpu: expected 1999, found 2000" in result.stdout


def test_a_folder_without_cases_and_a_line_that_is_none_are_errors(tmp_path: Path) -> None:
    assert "holds no cases" in str(CliRunner().invoke(parity, [str(tmp_path)]).exception)
    (tmp_path / "loadaware.jsonl").write_text('{"case": 1}\n')
    assert "loadaware.jsonl:1 is no case" in str(CliRunner().invoke(parity, [str(tmp_path)]).exception)


def test_a_crash_of_upstream_does_not_count_towards_the_share_that_may_differ(tmp_path: Path) -> None:
    lines = [{"case": "c", "op": "double", "input": {"n": 0}, "output": {"panic": True}}] * 3
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rule = Rule("zero", lambda _, given: given["n"] == 0, lambda _, __: {"panic": True})
    tally = tally_file(tmp_path / "c.jsonl", Domain(doubled, (rule,)))
    assert (tally.argued, tally.crashes, tally.different) == (0, 3, 0)
    assert tally.holds


def test_objects_that_consist_of_remarks_are_not_compared() -> None:
    recorded = {"kept": {}, "gone": {"remark": 1}, "part": {"remark": 1, "n": 2}, "list": [{"remark": 1}]}
    assert without(recorded, frozenset({"remark"})) == {"kept": {}, "part": {"n": 2}, "list": [{}]}
