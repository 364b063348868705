"""`koord bench webhook` measures pods that are mutated and pods that are admitted."""

import json

from click.testing import CliRunner

from cli.main import koord


def test_the_measured_responses_mutated_pods() -> None:
    command = ["bench", "webhook", "--profiles", "3", "--namespaces", "5", "--quotas", "2", "--rate", "20"]
    found = CliRunner().invoke(koord, [*command, "--seconds", "1", "--json"])
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)
    assert figures["answers_per_s"] > 1
    assert 0 < figures["cpu_ms_per_answer"] < 100
    assert figures["p50_ms"] <= figures["p99_ms"]
