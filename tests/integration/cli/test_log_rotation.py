"""Logs stay below a size while their programs continue to write."""

import subprocess
import sys
from pathlib import Path

from cli.processes.log_rotation import rotate
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from tests.support.waiting import until, wait_until

COUNT = """
import itertools, sys, time
for number in itertools.count():
    print(number, file=sys.stderr, flush=True)
    time.sleep(0.0005)
"""


def test_a_small_log_and_an_absent_one_are_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert not rotate(log, 10)
    log.write_text("123456789")
    assert not rotate(log, 10)
    assert log.read_text() == "123456789"


def test_a_large_log_is_moved_aside_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for text in ("first", "second", "third", "fourth"):
        log.write_text(text)
        assert rotate(log, 1, kept=3)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "a.log": "",
        "a.log.1": "fourth",
        "a.log.2": "third",
        "a.log.3": "second",
    }


def test_a_program_that_appends_continues_at_the_beginning_of_the_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab") as output:
        command = [sys.executable, "-c", "import sys; print('before'); sys.stdout.flush(); input(); print('after')"]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output)
    wait_until(lambda: log.stat().st_size, "the first line")
    assert rotate(log, 1)
    program.communicate(b"\n", timeout=30)
    assert (log.with_name("a.log.1").read_text(), log.read_text()) == ("before\n", "after\n")


async def test_the_supervisor_keeps_its_services_logs_small(tmp_path: Path) -> None:
    spec = Spec("talker", "scheduler", command=[sys.executable, "-c", COUNT])
    async with Supervisor([spec], Endpoints("", ""), tmp_path, log_bytes=1_000) as supervisor:
        log = supervisor.units["talker"].process.log
        await until(log.with_name("talker.log.3").exists)
    lines = [int(line) for number in (3, 2, 1) for line in log.with_name(f"talker.log.{number}").read_text().split()]
    assert len(lines) > 500
    assert lines == sorted(set(lines))  # each once, in order


async def test_the_reason_of_an_end_is_read_from_a_log_that_was_rotated_meanwhile(tmp_path: Path) -> None:
    ends = "import sys, time; print('x' * 5_000, file=sys.stderr, flush=True); time.sleep(2); sys.exit('no room left')"
    spec = Spec("ending", "scheduler", command=[sys.executable, "-c", ends])
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ending.log").write_text("of the run before\n" * 100)
    async with Supervisor([spec], Endpoints("", ""), tmp_path, log_bytes=4_000) as supervisor:
        await supervisor.wait_until(lambda unit: bool(unit.why), 60, "ended")
        assert supervisor.units["ending"].why == "no room left"
    assert (tmp_path / "logs" / "ending.log.1").read_text().startswith("of the run before\n")
