"""The koord command itself: help, completion, exit codes, start-up."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from cli.bench.command import ENTRIES as BENCHES
from cli.bench.command import bench
from cli.lazy import LazyGroup
from cli.main import COMMANDS, koord
from shared.errors import KoordError


@pytest.mark.parametrize(
    ("group", "name"), [*((koord, name) for name in COMMANDS), *((bench, name) for name in BENCHES)]
)
def test_a_group_says_of_a_command_what_the_command_says_of_itself(group: LazyGroup, name: str) -> None:
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


def test_completion_offers_commands_without_importing_them() -> None:
    env = {**os.environ, "_KOORD_COMPLETE": "bash_complete", "COMP_WORDS": "koord e", "COMP_CWORD": "1"}
    command = [sys.executable, "-X", "importtime", "-m", "cli"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,events"]
    assert "sqlalchemy" not in done.stderr
    assert "aiohttp" not in done.stderr


def test_start_up_takes_less_than_150_ms_of_the_processor() -> None:
    def once() -> float:
        before = os.times()
        subprocess.run([sys.executable, "-m", "cli", "--help"], capture_output=True, check=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(once() for _ in range(5)) < 0.15


def test_it_says_its_version() -> None:
    assert CliRunner().invoke(koord, ["--version"]).stdout.startswith("koord 0.")
