"""`koord bench gangs` on a few nodes: every gang is placed or refused as it should be, and the sizes are checked."""

import json

import pytest
from click.testing import CliRunner

from cli.bench import gangs as bench


def test_the_figures_are_one_json_object_and_gangs_that_do_not_fit_place_no_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "PODS_OF_A_SIZE", 64)
    monkeypatch.setattr(bench, "LARGE", 100)
    result = CliRunner().invoke(bench.gangs, ["--nodes", "20", "--racks", "3", "--sizes", "4,16,4096", "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["by_size"]["4"] > 0
    assert figures["by_size"]["16"] > 0
    assert figures["by_size"]["4096"] == figures["pods_per_s"] == 0
    assert figures["gang_1000_ms"] > 0
    assert figures["refused_ms"] > 0


def test_bad_sizes_are_rejected_with_what_to_do() -> None:
    for text in ("four", "0", ""):
        result = CliRunner().invoke(bench.gangs, ["--sizes", text])
        assert result.exit_code == 2
        assert "give whole numbers above 0" in result.output
