"""How many shards an installation has."""

import pytest
from click.testing import CliRunner

from cli.main import koord
from cli.services import contexts, metrics_shards
from cli.supervisor.command import specs_for


def test_each_shard_has_a_context_and_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOORD_METRICS_SHARDS", "2")
    assert [name for name in contexts() if name.startswith("metrics-")] == ["metrics-0", "metrics-1"]
    ingest = [spec for spec in specs_for(None) if spec.service == "metrics-ingest"]
    assert [(spec.name, spec.env["KOORD_SHARD"]) for spec in ingest] == [
        ("metrics-ingest-0", "0"),
        ("metrics-ingest-1", "1"),
    ]


def test_without_the_variable_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOORD_METRICS_SHARDS", raising=False)
    assert metrics_shards() == 1


@pytest.mark.parametrize("text", ["many", "", "0", "257", "1.5"])
def test_what_is_no_number_of_shards_is_an_error_that_names_the_variable(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOORD_METRICS_SHARDS", text)
    result = CliRunner().invoke(koord, ["up"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"koord: KOORD_METRICS_SHARDS is {text!r}: ")
