"""koord bench quota --servers: charges through NATS and Postgres."""

import json
import subprocess
import sys

SMALL = ("--quotas", "10", "--pods", "300", "--batch", "64")


def test_every_pod_is_charged_and_the_figures_are_printed() -> None:
    command = [sys.executable, "-m", "cli", "bench", "quota", "--servers", *SMALL, "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout)
    assert (found["quotas"], found["pods"], found["batch"]) == (10, 300, 64)
    assert found["charges_per_s"] > 0
    assert 0 < found["charge_ms_p50"] <= found["charge_ms_p99"]
