"""`koord bench proxy` measures a proxy with the agent's hooks in the call."""

import json
import subprocess
import sys


def test_the_latency_of_a_hooked_call_is_measured() -> None:
    command = [sys.executable, "-m", "cli", "bench", "proxy", "--calls=50", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    for kind in ("plain", "hooked"):
        found = figures[kind]
        assert 0 < found["direct_p50"] < found["proxy_p50"] <= found["proxy_p99"]
        assert abs(found["added_p50"] - (found["proxy_p50"] - found["direct_p50"])) < 0.01
    assert figures["hooked"]["added_p50"] > figures["plain"]["added_p50"], "a hook is a call of its own"
    assert figures["rss_mib"] > 10
