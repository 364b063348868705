"""Addresses and folders that cannot be meant: one line that says what to give."""

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
