"""A program that is started as a fork can be read, stopped, waited for and killed like any other, and has an
environment of its own.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cli.processes.child_process import Process, ProgramFailed

KOORD = [sys.executable, "-P", "-m", "cli"]


def test_output_and_exit_code_are_the_programs(tmp_path: Path) -> None:
    process = Process("koord", [*KOORD, "events", "--no-such-option"], tmp_path / "log")
    process.start()
    assert process.wait(60) == 2
    assert "No such option" in process.tail()
    assert not process.running


def test_it_gets_its_own_environment_and_folder_and_this_process_keeps_its(tmp_path: Path) -> None:
    bad = {**os.environ, "KOORD_POSTGRES": "mysql://elsewhere", "KOORD_NATS": "nats://127.0.0.1:1"}
    process = Process("audit", [*KOORD, "run", "audit"], tmp_path / "log", env=bad)
    process.start()
    assert process.wait(60) == 1
    assert "mysql://elsewhere" in process.tail()
    assert "KOORD_POSTGRES" not in os.environ


@pytest.fixture
def waiting(tmp_path: Path) -> Process:
    """A service whose servers are away: it runs until it is ended."""
    env = {**os.environ, "KOORD_POSTGRES": "postgresql://nobody@127.0.0.1:9/none", "KOORD_NATS": "nats://127.0.0.1:9"}
    process = Process("audit", [*KOORD, "run", "audit"], tmp_path / "log", env=env)
    process.start()
    return process


def test_a_stopped_one_shows_as_stopped_and_ends_by_its_signal(waiting: Process) -> None:
    assert waiting.pid
    program = psutil.Process(waiting.pid)
    waiting.pause()
    while program.status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    waiting.kill()
    assert waiting.exit_code == -signal.SIGKILL
    assert not psutil.pid_exists(program.pid)


async def test_its_end_is_noticed_at_once_with_its_code(waiting: Process) -> None:
    asyncio.get_running_loop().call_later(0.1, waiting.send, signal.SIGKILL)
    await waiting.ended()
    assert waiting.exit_code == -signal.SIGKILL


def test_a_wait_that_takes_too_long_kills_it(waiting: Process) -> None:
    with pytest.raises(ProgramFailed):
        waiting.wait(0.01)
    assert not waiting.running


def test_it_dies_with_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from cli.processes.child_process import Process\n"
        "from tests.support import warm_start\n"
        "warm_start.install()\n"
        f"process = Process('koord', [sys.executable, '-m', 'cli', 'run', 'audit'], Path({str(tmp_path / 'log')!r}))\n"
        "process.start()\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    env = {**os.environ, "KOORD_POSTGRES": "postgresql://nobody@127.0.0.1:9/none", "KOORD_NATS": "nats://127.0.0.1:9"}
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=root, capture_output=True, text=True, check=False
    )
    pid = int(done.stdout)
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
