"""The disk of Postgres' write-ahead log is full under `koord up`: it goes on once there is room, and has lost nothing."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.embedded import EmbeddedPostgres
from cli.supervisor.system_folder import wal_on_another_disk
from tests.integration.cli.system_processes import processes_of
from tests.support.prepared_folders import copy_installation
from tests.support.small_disk import fill, small_wal_disk
from tests.support.terminal import CTRL_C, Terminal
from tests.support.waiting import wait_until

LEADING = r"simulator +leading.*\n(.*\n)*?scheduler +leading"
ENV = {"KOORD_SIMULATOR_NODES": "5", "KOORD_SIMULATOR_PODS": "10"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A system whose write-ahead log lies on a small disk of its own."""
    tmp_path.chmod(0o755)
    found = copy_installation(tmp_path / "up")
    with small_wal_disk(EmbeddedPostgres(found / "postgres")):
        yield found
        wait_until(lambda: processes_of(tmp_path), "end of the processes", holds=lambda left: not left)


def koord(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "cli", *command, "--dir", str(folder)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def events(folder: Path) -> dict[str, str]:
    """Returns the events of the log: place -> content."""
    lines = koord(folder, "events", "--last", "0", "-o", "json").stdout.splitlines()
    return {f"{event['context']}/{event['seq']}": event["data"] for event in map(json.loads, lines)}


def owners_url(folder: Path) -> str:
    address = json.loads((folder / "endpoints.json").read_text())["postgres"].rpartition("@")[2]
    password = (folder / "postgres" / "owner.pgpass").read_text().strip().rpartition(":")[2]
    return f"postgresql://koord:{password}@{address}"


def test_a_system_whose_write_ahead_log_has_no_room_names_it_and_goes_on_once_there_is(folder: Path) -> None:
    wal = wal_on_another_disk(folder / "postgres")
    assert wal is not None
    with Terminal(["up", "--dir", str(folder), "--service", "simulator", "--service", "scheduler"], ENV) as terminal:
        terminal.wait_for(LEADING)
        before = wait_until(lambda: events(folder), holds=lambda found: "PodPlaced" in str(found))
        filler = asyncio.run(fill(owners_url(folder), wal))
        terminal.wait_for(r"postgres ended and does not start; it is tried again until it does")
        top = koord(folder, "top", "--once")
        assert (top.returncode, top.stderr.startswith("Postgres: ")) == (1, True)
        found = koord(folder, "doctor").stdout
        assert "ERROR postgres: " in found
        assert re.search(f"ERROR disk: 0% of the write-ahead log's disk is free .{wal}", found)

        filler.unlink()
        terminal.wait_for(r"postgres ended and was started again")
        terminal.wait_for(LEADING)
        after = events(folder)
        assert {place: after.get(place) for place in before} == before
        assert len(after) > len(before)
        assert koord(folder, "audit", "verify").returncode == 0
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
