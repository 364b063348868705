"""Programs of the node: their output, and each way to fail."""

from services.node_agent.kernel.program_run import MOST_FAILURES, LoggedFailures, ProgramResult, run_program


def test_output_and_input_of_a_program() -> None:
    assert run_program(("cat",), "both\nlines\n") == ProgramResult("both\nlines\n")


def test_a_failure_names_the_command_and_the_reason() -> None:
    failed = run_program(("sh", "-c", "echo shown; echo 'no\nsuch device' >&2; exit 2"))
    assert failed.output == "shown\n"
    assert failed.failure.endswith(": no such device")
    assert run_program(("false",)).failure == "false: it ended with status 1"


def test_a_program_that_is_absent_or_hangs_has_failed() -> None:
    assert run_program(("no-such-program",)).failure.startswith("no-such-program cannot be run: ")
    assert "timed out" in run_program(("sleep", "10"), runs_for_s=0.05).failure


def test_output_that_is_no_text_is_read_all_the_same() -> None:
    assert run_program(("printf", r"a\377b")).output == "a\ufffdb"


def test_each_failure_is_logged_once_and_the_oldest_is_forgotten() -> None:
    logged = LoggedFailures()
    assert [logged.is_new(text) for text in ("a", "b", "a")] == [True, True, False]
    assert all(logged.is_new(str(number)) for number in range(MOST_FAILURES - 1))
    assert logged.is_new("a")
    assert not logged.is_new("98")
