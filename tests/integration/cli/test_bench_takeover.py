"""`koord bench takeover` as a user runs it, at a small scale."""

import json
import subprocess
import sys


def test_a_start_and_a_take_over_end_in_a_placement() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli", "bench", "takeover", "--json", "--nodes", "50", "--pods", "500", "--turns", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["nodes"], found["pods"]) == (50, 500)
    assert len(found["starts"]) == len(found["takeovers"]) == 2
    for took in (*found["starts"], *found["takeovers"]):
        assert 0 < took["leading_s"] < took["placed_s"]
    assert found["snapshot_mib"] > 0
