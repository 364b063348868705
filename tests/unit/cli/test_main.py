"""The koord command itself: help, completion, exit codes, start-up."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

import click
import pytest
from click.testing import CliRunner

from cli.bench.command import ENTRIES as BENCHES
from cli.bench.command import bench
from cli.main import COMMANDS, koord
from cli.terminal.lazy_group import LazyGroup
from shared.errors import KoordError


@pytest.mark.parametrize(
    ("group", "name"), [*((koord, name) for name in COMMANDS), *((bench, name) for name in BENCHES)]
)
def test_the_help_of_a_group_has_the_first_line_of_each_command(group: LazyGroup, name: str) -> None:
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == group.entries[name].help


def test_an_error_for_people_is_one_line_on_stderr_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KoordError("node n1: cpu is 'lots'; give a quantity")

    monkeypatch.setattr(koord, "get_command", lambda *_: click.Command("broken", callback=fail))
    result = CliRunner().invoke(koord, ["broken"])
    assert (result.exit_code, result.stdout, result.stderr) == (
        1,
        "",
        "koord: node n1: cpu is 'lots'; give a quantity\n",
    )


def test_wrong_usage_is_exit_code_2() -> None:
    assert CliRunner().invoke(koord, ["no-such-command"]).exit_code == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell: str) -> None:
    result = CliRunner().invoke(koord, ["completion", shell])
    assert result.exit_code == 0
    assert "_KOORD_COMPLETE" in result.stdout


def imports_of(words: Sequence[str], env: Mapping[str, str]) -> tuple[str, set[str]]:
    """Returns the output of `koord WORDS`, and the packages it imports besides Python's own."""
    command = [sys.executable, "-S", "-X", "importtime", "-m", "cli", *words]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        command, env={**os.environ, **env, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    found = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    return done.stdout, found - sys.stdlib_module_names - {"imported package"}


def test_completion_offers_commands_without_importing_them() -> None:
    requested = {"_KOORD_COMPLETE": "bash_complete", "COMP_WORDS": "koord eve", "COMP_CWORD": "1"}
    printed, imported = imports_of([], requested)
    assert printed.split() == ["plain,events"]
    assert imported == {"cli", "shared", "click"}


def test_help_is_there_at_once_because_nothing_but_click_is_imported_for_it() -> None:
    printed, imported = imports_of(["--help"], {})
    assert "Usage:" in printed
    assert imported == {"cli", "shared", "click"}


SLOW_TO_IMPORT = {"aiohttp", "alembic", "nats", "numba", "prometheus_client", "rich", "sqlalchemy", "yaml"}


@pytest.mark.parametrize(
    "words",
    [
        "why pod",
        "events",
        "quota tree",
        "quota explain",
        "shadow report",
        "config status",
        "node explain",
        "followers list",
        "audit verify",
    ],
)
def test_a_command_that_reads_the_log_imports_nothing_of_servers_and_screens(words: str) -> None:
    printed, imported = imports_of([*words.split(), "--help"], {})
    assert "Usage:" in printed
    assert not imported & SLOW_TO_IMPORT


def test_it_prints_its_version() -> None:
    assert CliRunner().invoke(koord, ["--version"]).stdout.startswith("koord 0.")
