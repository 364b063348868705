"""The model of upstream's Reservations without its quirks gives production's answers, with all of them upstream's."""

from pathlib import Path

from cli.parity.case_domain import load
from cli.parity.compare import difference
from cli.parity.run_cases import case_file, read_cases, without
from cli.parity.upstream.reservation.cases import predicted
from cli.parity.upstream.reservation.quirks import ALL, NONE

CASES = Path(__file__).with_name("cases")


def test_with_all_quirks_it_is_upstream_and_without_any_production() -> None:
    domain, path = load("reservation"), case_file(CASES, "reservation")
    assert path is not None
    for case in read_cases(path):
        recorded = without(case.output, domain.remarks)
        assert difference(recorded, predicted(case.op, case.input, ALL)) is None, case.case
        ours = domain.answer(case.op, case.input)
        assert difference(predicted(case.op, case.input, NONE), ours) is None, case.case
