"""The benchmark measures what it says: everything is written after a change, nothing when nothing moved."""

from cli.bench.slo import measure


def test_a_new_percentage_writes_all_nodes_and_reports_within_the_threshold_write_none() -> None:
    figures = measure(20, 4)
    assert (figures.nodes, figures.pods) == (20, 80)
    assert (figures.writes_config, figures.writes_reports) == (20, 0)
