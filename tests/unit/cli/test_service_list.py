"""The services, their manifests, and the shards of an installation."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from cli.main import koord
from cli.service_list import SERVICES, contexts, load, manifest, metrics_shards
from cli.supervisor.command import specs_for
from shared.errors import KoordError


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_made_of_what_it_declares(name: str) -> None:
    made = load(name)
    assert made.manifest is manifest(name)
    assert made.name == name
    member = made.member(1 if "*" in made.writes else 0, 2)
    assert set(member.follows) == set(member.manifest.follows)
    assert "metrics-*" not in member.follows


def test_one_that_is_made_of_something_else_is_refused() -> None:
    other = manifest("gateway")._replace(follows=("cluster",))
    with pytest.raises(KoordError, match="service gateway follows or serves other names than its manifest"):
        load("gateway")._replace(manifest=other).member(0, 1)


def test_what_services_may_do_is_read_without_what_they_need_to_run() -> None:
    code = "import sys; from cli.service_list import *; [manifest(name) for name in SERVICES]; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"numpy", "sqlalchemy", "nats", "kubernetes_asyncio", "aiohttp"} & set(loaded)


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
