"""The koord command itself: help, completion, exit codes, start-up."""

import gc
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from cli.bench.command import ENTRIES as BENCHES
from cli.bench.command import bench
from cli.main import COMMANDS, koord
from cli.terminal.json_path import found_at
from cli.terminal.lazy_group import Entry, LazyGroup
from shared.errors import KoordError
from shared.runtime.service import Environment
from shared.settings import BadSetting, MissingSetting


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
        "get quotas",
        "explain quota",
        "shadow report",
        "get configs",
        "explain node",
        "followers list",
        "audit verify",
    ],
)
def test_a_command_that_reads_the_log_imports_nothing_of_servers_and_screens(words: str) -> None:
    printed, imported = imports_of([*words.split(), "--help"], {})
    assert "Usage:" in printed
    assert not imported & SLOW_TO_IMPORT


@pytest.mark.parametrize("words", ["why gang", "why reservation", "get reservations", "pending"])
def test_a_command_that_reads_the_scheduler_imports_no_arrays(words: str) -> None:
    _, imported = imports_of([*words.split(), "--help"], {})
    assert not imported & {"numba", "numpy"}


def test_the_doctor_reads_pages_of_services_and_imports_nothing_that_serves_them() -> None:
    _, imported = imports_of(["doctor", "--help"], {})
    assert not imported & {"numba", "opentelemetry", "prometheus_client", "rich"}


def test_no_garbage_is_collected_while_a_command_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_command.py").write_text("import click, gc\nWAS_ON, own = gc.isenabled(), click.Command('own')\n")
    monkeypatch.syspath_prepend(tmp_path)
    entries = {"own": Entry("own_command", "own", "")}
    assert LazyGroup("group", entries=entries).load("own", entries["own"]).name == "own"
    assert not sys.modules.pop("own_command").WAS_ON
    assert gc.isenabled()


def test_the_checks_of_a_waiting_pod_import_no_arrays() -> None:
    code = "import sys, services.scheduler.explain.probable_mistakes; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"numba", "numpy"} & set(found)


def test_ctrl_c_while_modules_are_imported_ends_a_command_without_a_traceback() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "cli", "get", "pods"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr
        for line in running.stderr:
            if line.rstrip().endswith("cli.entry_point"):
                break
        running.send_signal(signal.SIGINT)
        rest = [line for line in running.stderr if not line.startswith("import time:")]
    assert running.returncode in (-signal.SIGINT, 130)
    assert rest == []


def test_it_prints_its_version() -> None:
    assert CliRunner().invoke(koord, ["--version"]).stdout.startswith("koord 0.")


def groups(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Group]]:
    """Yields a group and all below it, by the words that lead there."""
    yield words, group
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from groups(command, (*words, name))


def test_no_summary_in_a_help_is_cut_off() -> None:
    for words, group in groups(koord):
        printed = CliRunner().invoke(koord, [*words, "--help"]).stdout
        assert not re.search(r"\w\.\.\.$", printed, re.MULTILINE), words
        assert all(group.get_command(click.Context(group), name) for name in group.list_commands(click.Context(group)))


def test_every_help_fits_into_80_columns() -> None:
    commands = [
        (*words, *name)
        for words, group in groups(koord)
        for name in [(), *((each,) for each in group.list_commands(click.Context(group)))]
    ]
    assert ("describe", "pod") in commands
    for words in commands:
        printed = CliRunner().invoke(koord, [*words, "--help"], terminal_width=80)
        assert printed.exit_code == 0, words
        assert [line for line in printed.stdout.splitlines() if len(line) > 80] == [], words


@pytest.mark.parametrize(
    "words", ["get quota", "get quotas", "get eq", "get elasticquotas", "explain po/web", "why pods"]
)
def test_a_kind_goes_by_any_of_its_names(words: str) -> None:
    assert CliRunner().invoke(koord, [*words.split(), "--help"]).exit_code == 0


def test_a_kind_that_a_verb_does_not_take_is_an_error_that_names_those_there_are() -> None:
    refused = CliRunner().invoke(koord, ["explain", "config", "x"])
    assert (
        refused.exit_code,
        "there is no kind 'config' to `koord explain`; there are node, pod, quota" in refused.stderr,
    ) == (2, True)


@pytest.mark.parametrize("path", ["{.items[*].name}", ".items[*].name", "$.items[*].name", "items[*].name"])
def test_a_path_is_accepted_with_and_without_what_kubectl_puts_around_it(path: str) -> None:
    assert found_at(path, {"items": [{"name": "a"}, {"name": "b"}]}) == ["a", "b"]


@pytest.mark.parametrize("path", ["{range .items[*]}{.name}{end}", "{.items[", "$.a b"])
def test_what_is_no_path_is_wrong_usage(path: str) -> None:
    refused = CliRunner().invoke(koord, ["get", "quotas", "-o", f"jsonpath={path}"])
    assert (refused.exit_code, path in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [("{.items[*].name", "has a '{' without a '}'"), (".items[*].name}", "has a '}' without a '{'")],
)
def test_a_forgotten_brace_is_named(path: str, wrong: str) -> None:
    refused = CliRunner().invoke(koord, ["get", "pods", "-o", f"jsonpath={path}"])
    assert (refused.exit_code, f"{path!r} {wrong}; add it, or leave both out" in refused.stderr) == (2, True)


def test_a_kind_that_another_command_shows_is_answered_with_that_command() -> None:
    """`koord get devices` advised `koord get evictions`."""
    for words, command in (("get devices", "koord devices"), ("describe eviction a", "koord why eviction")):
        result = CliRunner().invoke(koord, words.split())
        assert (result.exit_code, "perhaps" in result.stderr) == (2, False)
        assert f"; `{command}` " in result.stderr


@pytest.mark.parametrize("arguments", [("why", "config", "slo"), ("why", "pdo", "web")])
def test_a_kind_that_a_verb_does_not_have_is_named(arguments: tuple[str, ...]) -> None:
    meant = "; perhaps 'pod' is meant" if arguments[1] == "pdo" else ""
    refused = CliRunner().invoke(koord, list(arguments))
    assert refused.exit_code == 2
    named = (
        f"there is no kind {arguments[1]!r} to `koord why`{meant}; there are device, eviction, gang, node, pod, quota, "
        "reservation, slowdown"
    )
    assert named in refused.stderr


def test_all_namespaces_is_accepted_for_kinds_without_namespaces(tmp_path: Path) -> None:
    for kind in ("nodes", "quotas", "reservations", "configs"):
        printed = CliRunner().invoke(koord, ["get", kind, "-A", "--dir", str(tmp_path)])
        assert (printed.exit_code, "no system runs in" in printed.stderr) == (1, True)


def test_a_service_without_a_database_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOORD_POSTGRES", raising=False)
    with pytest.raises(MissingSetting, match="KOORD_POSTGRES is not set; the log's database: postgresql://"):
        Environment.load("", {})
    with pytest.raises(BadSetting, match=r"KOORD_SHARD is 'x': expected a whole number$"):
        Environment.load("", {"KOORD_POSTGRES": "postgresql://a@b/c", "KOORD_SHARD": "x"})
