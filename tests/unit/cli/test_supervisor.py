"""Decisions of the supervisor: restarts, and the reason of an end."""

from cli.supervisor.exit_reason import why_it_ended
from cli.supervisor.restart_backoff import next_delay


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


def test_without_a_message_the_exit_code_is_the_reason() -> None:
    assert why_it_ended(3, "") == "exit code 3"
    assert why_it_ended(0, '{"level":"info","message":"bye"}') == "ended by itself"
