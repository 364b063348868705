"""Addresses and folders that cannot be meant: one line that says what to give."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import koord


@pytest.mark.parametrize("url", ["garbage", "postgresql://host:port/name", "mysql://host/name"])
@pytest.mark.parametrize("command", [("events",), ("why", "pod", "default/web"), ("get", "configs")])
def test_a_database_url_that_is_none(url: str, command: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(koord, list(command), env={"KOORD_POSTGRES": url})
    assert printed.exit_code == 1
    assert "give a URL such as postgresql://user@127.0.0.1:5432/koordstream" in printed.stderr


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    printed = CliRunner().invoke(koord, ["up", "--dir", str(tmp_path / "file")])
    assert "cannot be a system's folder (Not a directory); give another --dir" in printed.stderr


UNPRIVILEGED = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="takes root to become somebody else")
@pytest.mark.parametrize("command", [["up", "--dir"], ["events", "--dir"], ["credentials", "init"]])
def test_a_folder_without_rights(tmp_path: Path, command: list[str]) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:  # nobody may pass, but not write
        if parent.stat().st_uid == os.geteuid() and parent.is_relative_to(tmp_path.parents[2]):
            parent.chmod(0o755)
    (tmp_path / "there" / "simulated").mkdir(parents=True)
    place = tmp_path / ("there" if command == ["events", "--dir"] else "new")
    run = [*UNPRIVILEGED, sys.executable, "-m", "cli", *command, str(place)]
    printed = subprocess.run(
        run, capture_output=True, text=True, check=False, env=os.environ | {"HOME": "/nonexistent"}
    )
    assert printed.returncode == 1
    assert "Traceback" not in printed.stderr
    assert printed.stderr.startswith("koord: ")


def test_a_service_whose_database_is_away_ends_with_one_sentence() -> None:
    env = os.environ | {"KOORD_POSTGRES": "postgresql://ada:secret@127.0.0.1:1/x", "KOORD_NATS": "nats://127.0.0.1:1"}
    run = [sys.executable, "-m", "cli", "run", "audit"]
    printed = subprocess.run(run, capture_output=True, text=True, check=False, env=env)
    assert printed.returncode == 1
    assert "Traceback" not in printed.stderr
    assert "secret" not in printed.stderr
    last = json.loads(printed.stderr.splitlines()[-1])["message"]
    assert last.startswith("Postgres at postgresql://ada:***@127.0.0.1:1/x cannot be reached: ")
    assert last.endswith("; start it, or correct KOORD_POSTGRES")


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "below"
    printed = CliRunner().invoke(koord, ["audit", "keygen", "--out", str(path / "key")])
    assert printed.exit_code == 1
    assert printed.stderr == (
        f"koord: {path} cannot be used (Not a directory); name another path, or correct its rights\n"
    )
