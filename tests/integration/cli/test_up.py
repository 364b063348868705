"""koord up on a terminal, with real servers and services."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.integration.cli.system_processes import postmaster_of, processes_of, service
from tests.support.prepared_folders import copy_installation
from tests.support.terminal import CTRL_C, Terminal
from tests.support.waiting import wait_until

WAITS_FOR_AN_HOUR = """
from cli.supervisor import supervisor
supervisor.DRAIN_S = 3_600
from cli.entry_point import main
main()
"""

ENV = {"KOORD_SIMULATOR_NODES": "5", "KOORD_SIMULATOR_PODS": "10"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for `koord up`; checks at the end that no process of it is left."""
    yield copy_installation(tmp_path / "up")
    wait_until(lambda: processes_of(tmp_path), "end of the processes", holds=lambda left: not left)


def test_the_table_lives_on_a_terminal_and_ctrl_c_stops_all(folder: Path) -> None:
    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"service +state +lag +events/s +events +restarts +why")
        terminal.wait_for(r"simulator +leading")
        service(folder, "simulator").kill()
        terminal.wait_for(r"simulator +leading .* 1 +ended at \d\d:\d\d:\d\dZ: killed by SIGKILL")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
        terminal.wait_for(r"simulator +stopped")
    assert not (folder / "endpoints.json").exists()


def test_a_second_ctrl_c_does_not_wait_for_a_service_that_hangs(folder: Path) -> None:
    arguments = ["up", "--dir", str(folder), "--service", "simulator"]
    with Terminal(arguments, ENV, ("-c", WAITS_FOR_AN_HOUR)) as terminal:
        terminal.wait_for(r"simulator +leading")
        hanging = service(folder, "simulator")
        hanging.suspend()
        terminal.press(CTRL_C)
        requested = time.monotonic()
        while time.monotonic() < requested + 1:
            hanging.suspend()  # it would be resumed for its SIGTERM, which must not happen
            time.sleep(0.001)
        assert terminal.process.poll() is None, "it waits for the service"
        terminal.press(CTRL_C)
        terminal.wait_for_end()


def test_without_a_terminal_each_change_is_a_line(folder: Path) -> None:
    command = [sys.executable, "-m", "cli", "up", "--dir", str(folder), "--service", "simulator"]
    with subprocess.Popen(
        command, env={**os.environ, **ENV}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout
        assert running.stderr
        begun = [running.stderr.readline()]
        while not begun[-1].endswith("making the tables of the log\n"):
            begun.append(running.stderr.readline())
            assert begun[-1], begun
        assert [line.split()[-1] for line in begun[-4:-2]] == ["Postgres", "NATS"]
        lines = [running.stdout.readline()]
        while lines[-1] and " leading" not in lines[-1]:
            lines.append(running.stdout.readline())
        second = subprocess.run(command, env={**os.environ, **ENV}, capture_output=True, text=True, check=False)
        running.send_signal(signal.SIGTERM)
        lines += running.stdout.readlines()
    assert running.returncode == 0
    states = [line.split()[2] for line in lines]
    assert states[0] == "starting"
    assert "leading" in states
    assert states[-1] == "stopped"
    assert (second.returncode, f"process {running.pid}" in second.stderr) == (1, True)


def test_a_server_that_ends_is_started_again_and_work_continues(folder: Path) -> None:
    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        postmaster_of(folder).kill()
        terminal.wait_for(r"postgres ended and was started again")
        terminal.wait_for(r"simulator +leading +\d+ +\d+ +\d+ +[1-9]")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0


def test_a_service_that_hangs_is_silent(folder: Path) -> None:
    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        hanging = service(folder, "simulator")
        hanging.suspend()
        terminal.wait_for(r"simulator +silent")
        hanging.resume()
        terminal.wait_for(r"simulator +(leading|down|starting)")
        terminal.press(CTRL_C)
        terminal.wait_for_end()


def test_a_server_that_does_not_respond_is_shown_since_when_until_it_does(folder: Path) -> None:
    koord = [sys.executable, "-m", "cli"]

    def run(*command: str) -> str:
        return subprocess.run([*koord, *command, "--dir", str(folder)], capture_output=True, text=True).stdout  # noqa: PLW1510  the doctor finds errors

    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        (nats,) = [one for one in processes_of(folder) if one.name() == "nats-server"]
        nats.suspend()
        away = r"cannot reach NATS at nats://127.0.0.1:\d+ since \d{4}-\d\d-\d\dT[\d:]+Z: "
        terminal.wait_for(r"simulator +leading +.*cannot reach")
        address = json.loads((folder / "endpoints.json").read_text())["services"]["simulator"]
        with urllib.request.urlopen(f"http://{address}/readyz") as ready:
            lines = ready.read().decode()  # between them one of the disk, on a machine whose disk is nearly full
            assert re.search(rf"\Aleading\n(.*\n)*{away}", lines)
        top = run("top", "--once")
        assert "leading (cannot reach NATS)" in top
        assert re.search(f"simulator {away}", top)
        assert re.search(f"ERROR services: simulator {away}", run("doctor"))
        nats.resume()
        wait_until(lambda: run("top", "--once"), holds=lambda shown: "cannot reach" not in shown)
        first = postmaster_of(folder)
        postgres = [first, *first.children()]
        for process in postgres:
            process.suspend()
        service(folder, "simulator").kill()  # which it would notice by itself after some seconds
        terminal.wait_for(
            rf"Postgres \(process {first.pid}\) does not respond since [^,]+, and the services wait for it"
        )
        terminal.wait_for(r"simulator +starting +.*cannot reach")
        with pytest.raises(HTTPError) as unready:
            urllib.request.urlopen(f"http://{address}/readyz")
        away = r"cannot reach Postgres at 127.0.0.1:\d+ since [-\dT:]+Z: no response in time"
        assert re.search(rf"\Astarting\n(.*\n)*{away}", unready.value.read().decode())
        for process in postgres:
            process.resume()
        terminal.wait_for(r"simulator +leading +\d+ +\d+ +\d+ +1 ")
        terminal.press(CTRL_C)
        terminal.wait_for_end()


def test_other_commands_find_the_system_by_its_folder(folder: Path) -> None:
    koord = [sys.executable, "-m", "cli"]
    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        events = [*koord, "events", "--dir", str(folder), "-o", "json"]
        wait_until(  # a leader still has its first events to append
            lambda: subprocess.run(events, capture_output=True, check=True).stdout,
            holds=lambda output: b"NodeObserved" in output,
        )
        subprocess.run([*koord, "migrate", "--dir", str(folder)], check=True)
        subprocess.run([*koord, "audit", "verify", "--dir", str(folder)], check=True, capture_output=True)
        terminal.press(CTRL_C)
        terminal.wait_for_end()
    gone = subprocess.run([*koord, "doctor", "--dir", str(folder)], capture_output=True, text=True, check=False)
    assert (gone.returncode, "koord up" in gone.stderr) == (1, True)


def test_after_its_end_the_log_of_a_system_can_be_read_by_several_and_followed_to_its_next_start(folder: Path) -> None:
    def reader(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cli", *arguments, "--dir", str(folder), "-o", "json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    up = ["up", "--dir", str(folder), "--service", "simulator"]
    with Terminal(up, ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        terminal.press(CTRL_C)
        assert terminal.wait_for_end() == 0
    with reader("events", "--log", "cluster", "--last", "1", "--follow") as follower:
        assert follower.stderr
        assert follower.stdout
        try:
            readers = [
                reader(*each) for each in (("events", "--log", "cluster"), ("audit", "verify"), ("get", "configs"))
            ]
            for each in readers:  # they wait for each other
                printed, notes = each.communicate()
                assert each.returncode == 0, notes
                stopped, ends = notes.splitlines()
                assert stopped == f"koord: no system runs in {folder}; its Postgres is started to read the log"
                assert ends.startswith("koord: the log ends at 20")
                assert printed.startswith(("[", "{"))
            while "follow from its start on" not in (note := follower.stderr.readline()):
                assert note
            assert [each.pid for each in processes_of(folder)] == [follower.pid]
            with Terminal(up, ENV) as terminal:
                terminal.wait_for(r"simulator +leading")
                while "WriterStarted" not in (line := follower.stdout.readline()):
                    assert line
                terminal.press(CTRL_C)
                assert terminal.wait_for_end() == 0
        finally:
            follower.kill()


def test_a_closed_terminal_stops_everything_in_order(folder: Path) -> None:
    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.wait_for_end() == 0


def test_after_a_sigkill_of_the_command_none_of_its_processes_is_left(folder: Path) -> None:
    with Terminal(["up", "--dir", str(folder), "--service", "simulator"], ENV) as terminal:
        terminal.wait_for(r"simulator +leading")
        terminal.process.kill()
        terminal.process.wait()
