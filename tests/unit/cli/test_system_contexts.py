"""Named contexts: their file, and which system a command means."""

import json
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from cli.main import koord
from cli.system_contexts.chosen_system import NO_FOLDER, chosen_system
from cli.system_contexts.contexts_file import SERVERS, changed_contexts, read_contexts
from shared.errors import KoordError

POSTGRES = "postgresql://operator:secret@db:5432/koord"


@pytest.fixture(autouse=True)
def _no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SERVERS, "KOORD_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KOORD_CONTEXTS", str(tmp_path / "config" / "contexts.json"))


def run(*words: str) -> Result:
    return CliRunner().invoke(koord, ["context", *words])


def test_a_context_is_set_used_shown_and_deleted(tmp_path: Path) -> None:
    assert "`koord context set NAME --dir DIR`" in run("list").stderr
    assert run("set", "laptop", "--dir", str(tmp_path)).stdout == (
        "Context laptop is set; `koord context use laptop` uses it.\n"
    )
    assert run("set", "prod", "--postgres", POSTGRES, "--nats", "nats://op:pw@bus", "--use").exit_code == 0
    assert run("list").stdout.splitlines() == [
        "CURRENT  NAME    SYSTEM",
        f"         laptop  {tmp_path}",
        "*        prod    postgresql://operator@db:5432/koord",
    ]
    assert run("list", "-o", "name").stdout == "laptop\nprod\n"
    assert json.loads(run("show", "-o", "json").stdout) == {
        "name": "prod", "current": True, "postgres": "postgresql://operator@db:5432/koord", "nats": "nats://op@bus"
    }  # fmt: skip
    assert run("use", "laptop").stdout == "Commands use context laptop.\n"
    assert run("show", "-o", "name").stdout == "laptop\n"
    assert run("delete", "laptop").stdout == "Context laptop is deleted; commands use .koord now.\n"
    assert (run("show").exit_code, "no context is in use" in run("show").stderr) == (1, True)


@pytest.mark.parametrize("words", [("use", "nosuch"), ("show", "nosuch"), ("delete", "nosuch")])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(words: tuple[str, ...]) -> None:
    assert "there are none; `koord context set nosuch --dir DIR` makes it" in run(*words).stderr
    run("set", "b", "--dir", "/b")
    run("set", "a", "--dir", "/a")
    refused = run(*words)
    assert (refused.exit_code, refused.stderr) == (1, "koord: there is no context 'nosuch'; there are a, b\n")
    refused = CliRunner().invoke(koord, ["events", "--context", "nosuch"])
    assert (refused.exit_code, refused.stderr) == (1, "koord: there is no context 'nosuch'; there are a, b\n")


@pytest.mark.parametrize(
    "words", [("x",), ("x", "--dir", "/a", "--postgres", POSTGRES), ("x", "--nats", "nats://bus"), ("x/y", "--dir", "/a"),
              ("x", "--postgres", "garbage")]
)  # fmt: skip
def test_a_context_is_one_system(words: tuple[str, ...]) -> None:
    assert run("set", *words).exit_code == 2
    assert not read_contexts().contexts


def meant(folder: Path | None = None, context: str | None = None) -> tuple[str, str | None]:
    with chosen_system(folder, context) as found:
        return str(found), os.environ.get("KOORD_POSTGRES")


def test_option_environment_and_the_context_in_use_outrank_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    run("set", "a", "--dir", "/a")
    run("set", "b", "--postgres", POSTGRES)
    assert meant() == (".koord", None)
    run("use", "a")
    assert meant() == ("/a", None)
    monkeypatch.setenv("KOORD_CONTEXT", "b")
    assert meant() == (str(NO_FOLDER), POSTGRES), "the servers of a context are not mixed with those of a folder"
    assert meant(Path("/own")) == ("/own", None)
    monkeypatch.setenv("KOORD_POSTGRES", "postgresql://named")
    monkeypatch.setenv("KOORD_NATS", "nats://named")
    assert meant() == (".koord", "postgresql://named")
    assert meant(context="a") == ("/a", None), "an option outranks the environment"
    assert os.environ["KOORD_NATS"] == "nats://named", "which is as it was afterwards"
    with pytest.raises(click.UsageError, match="give one of them"):
        meant(Path("/a"), "a")


def test_a_file_of_variables_is_read_at_each_use_and_its_password_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "operator.env"
    file.write_text(f"KOORD_POSTGRES={POSTGRES}\nKOORD_NATS=nats://bus\nOTHER=1\n")
    run("set", "prod", "--env-file", str(file), "--use")
    assert meant() == (str(NO_FOLDER), POSTGRES)
    assert "secret" not in (tmp_path / "config" / "contexts.json").read_text()
    file.write_text("KOORD_POSTGRES=postgresql://rotated\n")
    assert meant() == (str(NO_FOLDER), "postgresql://rotated")
    file.unlink()
    with pytest.raises(KoordError, match=r"operator\.env cannot be read"):
        meant()


def test_a_file_of_variables_without_a_database_is_refused_when_it_is_named_and_when_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "operator.env"
    file.write_text("# nothing\n")
    refused = run("set", "prod", "--env-file", str(file))
    assert (refused.exit_code, f"{file} sets no KOORD_POSTGRES" in refused.stderr) == (1, True)
    file.write_text("KOORD_POSTGRES=postgresql://there\n")
    run("set", "prod", "--env-file", str(file), "--use")
    file.write_text("")
    with pytest.raises(KoordError, match="sets no KOORD_POSTGRES"):
        meant()


def test_a_context_without_a_system_is_named(tmp_path: Path) -> None:
    run("set", "gone", "--dir", str(tmp_path / "gone"), "--use")
    refused = CliRunner().invoke(koord, ["get", "pods"])
    assert f"no system runs in {tmp_path / 'gone'}" in refused.stderr
    assert "context gone names it: `koord context use --none` leaves it" in refused.stderr


def test_the_file_is_its_owners_alone_and_a_change_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "config" / "contexts.json"
    run("set", "a", "--dir", "/a")
    before = file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(KeyboardInterrupt), changed_contexts() as found:
        found.contexts.clear()
        raise KeyboardInterrupt
    assert file.read_bytes() == before
    file.write_text('{"contexts": {"a": {"dir": "/a"}}}')
    for words in (("list",), ("set", "b", "--dir", "/b")):
        refused = run(*words)
        assert (refused.exit_code, "contexts.json cannot be read" in refused.stderr) == (1, True)
    assert "/a" in file.read_text(), "a file that cannot be read is not overwritten"


@pytest.mark.parametrize("words", ["events", "get quotas", "why pod", "explain node", "top", "doctor", "shadow report",
                                   "audit verify", "followers list", "evictions status", "cluster status", "log export"])  # fmt: skip
def test_every_command_that_reads_takes_a_context(words: str) -> None:
    assert "--context NAME" in CliRunner().invoke(koord, [*words.split(), "--help"]).stdout
