"""`koord credentials check` finds what is missing, out of date, readable by others or about to expire."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.credentials import secrets_file as books
from cli.credentials.check import check
from cli.main import koord


def init(folder: Path, *more: str) -> str:
    made = CliRunner().invoke(koord, ["credentials", "init", str(folder), *more])
    assert made.exit_code == 0, made.output
    return made.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init(tmp_path / "c")
    return tmp_path / "c"


def test_a_new_folder_has_no_fault_and_is_created_once(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert check(folder) == []
    assert CliRunner().invoke(koord, ["credentials", "check", str(folder)]).exit_code == 0
    assert "agrees with the manifests" in init(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_file_that_was_changed_by_hand_or_is_absent_is_named(folder: Path) -> None:
    users = folder / "nats" / "users.conf"
    users.write_text(users.read_text().replace("koord.log.scheduling", "koord.log.>"))
    (folder / "env" / "scheduler.env").unlink()
    assert {(fault.file, fault.what.split()[0]) for fault in check(folder)} == {
        ("nats/users.conf", "differs"),
        ("env/scheduler.env", "is"),
    }
    reported = CliRunner().invoke(koord, ["credentials", "check", str(folder)])
    assert (reported.exit_code, "koord credentials init" in reported.output) == (1, True)
    init(folder)
    assert check(folder) == []


def test_a_secret_that_others_can_read_is_named(folder: Path) -> None:
    (folder / "env" / "scheduler.env").chmod(0o644)
    (fault,) = check(folder)
    assert (fault.file, "0644" in fault.what) == ("env/scheduler.env", True)


def test_a_certificate_that_ends_soon_is_named_and_renewed(folder: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=380)
    assert {fault.file for fault in check(folder, soon)} == {"nats/tls/server.crt", "postgres/tls/server.crt"}


def test_a_service_that_got_no_login_gets_none_at_an_upgrade_until_it_is_named(folder: Path) -> None:
    init(folder, "--without", "simulator")
    init(folder)
    assert not (folder / "env" / "simulator.env").exists()
    init(folder, "--with", "simulator")
    init(folder)
    assert (folder / "env" / "simulator.env").exists()


def test_more_shards_bring_more_logins_and_fewer_services_fewer(folder: Path) -> None:
    init(folder, "--shards", "3", "--without", "simulator")
    assert (folder / "env" / "metrics-ingest-2.env").exists()
    assert not (folder / "env" / "simulator.env").exists()
    assert "koord.simulator.create" not in (folder / "nats" / "users.conf").read_text()
    assert check(folder) == []


def test_secrets_are_kept_over_all_of_these_changes(folder: Path) -> None:
    before = books.read(folder).secrets["scheduler"]
    init(folder, "--nats", "bus.example.org", "--postgres", "db.example.org/log", "--mount", "/run/koord")
    assert books.read(folder).secrets["scheduler"] == before
    env = (folder / "env" / "scheduler.env").read_text()
    assert "KOORD_NATS=tls://koord.scheduler@bus.example.org:4222\n" in env
    assert "@db.example.org:5432/log?sslmode=verify-full\n" in env
    assert "KOORD_NATS_NKEY=/run/koord/nkey\n" in env
