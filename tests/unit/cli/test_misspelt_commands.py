"""Misspelt commands and kinds: the error names the one that is probably meant."""

import pytest
from click.testing import CliRunner

from cli.main import koord


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["pendig"], "there is no command 'pendig' of `koord`; perhaps 'pending' is meant"),
        (["audit", "verfy"], "there is no command 'verfy' of `koord audit`; perhaps 'verify' is meant"),
        (
            ["get", "podz"],
            "there is no kind 'podz' to `koord get`; perhaps 'pods' is meant; there are configs, evictions, gangs",
        ),
        (["describe", "nod", "n1"], "there is no kind 'nod' to `koord describe`; perhaps 'node' is meant"),
        (["run", "schedular"], "there is no service 'schedular'; perhaps 'scheduler' is meant; there are gateway, "),
        (
            ["explain", "gang", "x"],
            "there is no kind 'gang' to `koord explain`; `koord why gang` explains one; there are",
        ),
        (["explain", "pg", "x"], "there is no kind 'pg' to `koord explain`; `koord why gang` explains one; there are"),
        (
            ["why", "--dir", "X"],
            "--dir is an option of a kind's command, and follows it: `koord why [KIND] NAME [OPTIONS]`",
        ),
        (["get", "-n", "X"], "-n is an option of a kind's command, and follows it: `koord get KIND [NAME] [OPTIONS]`"),
        (["xyzzy"], "there is no command 'xyzzy' of `koord`\n"),
    ],
)
def test_the_closest_name_is_named(typed: list[str], meant: str) -> None:
    printed = CliRunner().invoke(koord, typed, prog_name="koord")
    assert printed.exit_code == 2
    assert meant in printed.stderr


def test_the_services_that_run_starts_are_listed_once(capsys: pytest.CaptureFixture[str]) -> None:
    printed = CliRunner().invoke(koord, ["run", "--help"], prog_name="koord")
    assert printed.stdout.startswith("Usage: koord run [OPTIONS] SERVICE\n")
    missing = CliRunner().invoke(koord, ["run"], prog_name="koord")
    assert missing.stderr.count("metrics-ingest") == 1
