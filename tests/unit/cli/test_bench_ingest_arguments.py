"""`koord bench ingest` with so few nodes or seconds that no report is due."""

from click.testing import CliRunner

from cli.bench.metrics_ingest import ingest


def test_a_measurement_in_which_no_report_is_due_is_refused_before_anything_is_started() -> None:
    result = CliRunner().invoke(ingest, ["--nodes", "2", "--seconds", "5"])
    assert result.exit_code == 2
    assert "no report is due in 5 s of 2 nodes that report every 60 s" in result.stderr
    assert "give at least --seconds 30 or --nodes 12" in result.stderr
