"""Decisions of the supervisor: restarts, and the reason of an end."""

import asyncio
import re
import time
from pathlib import Path

import pytest

from cli.processes.child_process import Process
from cli.supervisor.exit_reason import why_it_ended
from cli.supervisor.restart_backoff import next_delay
from cli.supervisor.status_view import SHORT, View, cells
from cli.supervisor.supervisor import STABLE_S, Spec, Unit, _written_since
from shared.runtime.status import Status


def test_the_wait_doubles_up_to_ten_seconds() -> None:
    delays = [0.0]
    for _ in range(8):
        delays.append(next_delay(delays[-1], lived_s=1))
    assert delays[1:] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_process_that_lived_for_half_a_minute_starts_again_at_once() -> None:
    assert next_delay(10.0, lived_s=30) == 0.2


def test_a_signal_is_named() -> None:
    assert why_it_ended(-9, "") == "killed by SIGKILL"


def test_the_last_error_in_the_log_is_the_reason() -> None:
    tail = (
        '{"level":"error","message":"Postgres closed the connection","error":"LostHead"}\n'
        '{"level":"info","message":"bye"}\n'
    )
    assert why_it_ended(1, tail) == "LostHead: Postgres closed the connection"


def test_the_last_line_of_a_traceback_is_the_reason() -> None:
    tail = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    1 / 0\nZeroDivisionError: division by zero\n'
    assert why_it_ended(1, tail) == "ZeroDivisionError: division by zero"


def test_the_innermost_error_of_several_is_the_reason_and_no_piece_of_a_line_before_it() -> None:
    tail = (
        '{"level":"warning","message":"disk is low"}\n'
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "x.py", line 1, in <module>\n'
        "  |     run()\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "y.py", line 2, in run\n'
        "    |     raise KeyError('node-7')\n"
        "    | KeyError: 'node-7'\n"
        "    +------------------------------------\n"
    )
    assert why_it_ended(1, tail) == "KeyError: 'node-7'"


def test_a_long_log_is_read_from_the_begin_of_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"level":"info","message":"' + "x" * 70_000 + '"}\n{"level":"info","message":"bye"}\n')
    assert _written_since(log, 0) == '{"level":"info","message":"bye"}\n'
    assert _written_since(log, log.stat().st_size - 33) == '{"level":"info","message":"bye"}\n'


def unit_of(tmp_path: Path) -> Unit:
    return Unit(Spec("scheduler", "scheduler"), Process("scheduler", ["sleep", "60"], tmp_path / "log"), "127.0.0.1:1")


def test_the_reason_of_an_end_has_its_instant_is_short_after_the_return_and_goes() -> None:
    unit = unit_of(Path("unused"))
    unit.why, unit.ended_s = f"DatabaseUnreachable: {'Postgres is away ' * 9}", 1_800_000_000.0
    assert cells(unit, unit.ended_s + 1)[-1] == f"ended at 08:00:00Z: {unit.why}"
    unit.status = Status("scheduler", "leading", 1, 0, 0.0, 0, {}, bus=True)
    back = cells(unit, unit.ended_s + 1)[-1]
    assert back.startswith("ended at 08:00:00Z: DatabaseUnreachable: Postgres is away")
    assert (back.endswith("..."), len(back)) == (True, len("ended at 08:00:00Z: ") + SHORT)
    assert cells(unit, unit.ended_s + STABLE_S + 1)[-1] == ""


def test_the_reason_of_an_end_is_whole_until_the_service_has_started_again_and_never_in_the_present(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service that starts while Postgres is away needs the reason and the remedy; one that leads had them."""
    unit = unit_of(tmp_path)
    unit.process.start()
    unit.restarts, unit.ended_s = 2, time.time()
    unit.why = (
        "DatabaseUnreachable: Postgres at postgresql://u@127.0.0.1:5432/log cannot be reached: no response in time"
    )
    unit.status = Status("scheduler", "starting", 1, 0, 0.0, 0, {}, bus=True)
    assert cells(unit)[-1].endswith("no response in time")
    view = View([unit])
    unit.status = Status("scheduler", "leading", 1, 0, 0.0, 0, {}, bus=True)
    view.update()
    led = capsys.readouterr().out
    assert re.search(
        r" scheduler leading .*restarts=2; ended at \d\d:\d\d:\d\dZ: DatabaseUnreachable: .*\.\.\.$", led.strip()
    )
    unit.process.kill()
    asyncio.run(unit.process.ended())
    unit.status, unit.stopped = None, True
    view.update()
    assert capsys.readouterr().out.strip().endswith(" scheduler stopped restarts=2")


def test_a_process_that_hangs_is_named_and_after_some_seconds_with_how_to_end_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Services were to be killed in the first second in which Postgres hung."""
    unit = unit_of(tmp_path)
    unit.process.start()
    try:
        unit.answered, unit.silent_s = True, time.time() - 3
        pid = unit.process.pid
        assert unit.state == "silent"
        with View([unit]) as view:  # not on a terminal
            view.update()
            view.update()
            first = capsys.readouterr().out.strip()
            unit.silent_s -= 8
            view.update()
        assert re.search(rf" scheduler silent; process {pid} does not respond since \d\d:\d\d:\d\dZ$", first)
        assert capsys.readouterr().out.strip().endswith(f"Z; `kill -9 {pid}`: it is started again")
    finally:
        unit.process.kill()
    assert "does not respond" not in cells(unit)[-1]


def test_a_first_start_that_compiles_is_no_process_that_hangs(tmp_path: Path) -> None:
    unit = unit_of(tmp_path)
    unit.process.start()
    try:
        pid = unit.process.pid
        assert pid is not None
        unit.compiles = True
        for now_s in (1_800_000_000.0, 1_800_000_300.0):
            unit.polled(pid, None, now_s)
            assert cells(unit)[1] == "starting"
            assert cells(unit)[-1] == "it compiles its passes, once in each installation: a minute or more"
        unit.polled(pid, None, 1_800_000_601.0)
        assert cells(unit, 1_800_000_601.0)[-1].startswith(
            f"process {pid} does not respond since 08:00:00Z; `kill -9 {pid}`"
        )
    finally:
        unit.process.kill()


def test_a_process_that_misses_one_request_is_not_silent(tmp_path: Path) -> None:
    unit = unit_of(tmp_path)
    unit.process.start()
    try:
        pid = unit.process.pid
        assert pid is not None
        unit.polled(pid, Status("scheduler", "leading", 1, 0, 0.0, 0, {}, bus=True), 1_800_000_000.0)
        for now_s in (1_800_000_001.0, 1_800_000_003.0):
            unit.polled(pid, None, now_s)
            assert cells(unit)[1] == "leading"
        unit.polled(pid, None, 1_800_000_004.0)
        assert (cells(unit)[1], unit.silent_s) == ("silent", 1_800_000_001.0)
        unit.polled(pid, Status("scheduler", "leading", 1, 0, 0.0, 0, {}, bus=True), 1_800_000_005.0)
        assert (cells(unit)[1], unit.silent_s) == ("leading", None)
    finally:
        unit.process.kill()


def test_a_process_that_hangs_while_it_starts_is_named_too(tmp_path: Path) -> None:
    unit = unit_of(tmp_path)
    unit.process.start()
    try:
        pid = unit.process.pid
        assert pid is not None
        for now_s in (1_800_000_000.0, 1_800_000_059.0):
            unit.polled(pid, None, now_s)
            assert "does not respond" not in cells(unit)[-1]
        unit.polled(pid, None, 1_800_000_061.0)
        assert unit.state == "starting"
        assert cells(unit, 1_800_000_061.0)[-1].startswith(
            f"process {pid} does not respond since 08:00:00Z; `kill -9 {pid}`"
        )
        unit.stopped = True
        assert cells(unit)[-1] == "", "its end was requested: it is not started again"
    finally:
        unit.process.kill()


def test_without_a_message_the_exit_code_is_the_reason() -> None:
    assert why_it_ended(3, "") == "exit code 3"
    assert why_it_ended(0, '{"level":"info","message":"bye"}') == "ended by itself"
