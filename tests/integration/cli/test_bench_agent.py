"""`koord bench agent` measures an agent with real pods, and leaves nothing behind."""

import json
import subprocess
import sys

import pytest

from cli.bench.agent_pod_cgroups import ROOT, NoCgroups, PodCgroups


@pytest.mark.parametrize("transport", ["nats", "mqtt"])
def test_the_agents_cost_is_measured_with_real_pods(transport: str) -> None:
    try:
        with PodCgroups():
            pass
    except NoCgroups as error:
        pytest.skip(str(error))
    command = ["bench", "agent", "--pods=4", "--seconds=4", "--report-every=2", f"--transport={transport}", "--json"]
    with subprocess.Popen([sys.executable, "-m", "cli", *command], stdout=subprocess.PIPE, text=True) as bench:
        printed, _ = bench.communicate()
    assert bench.returncode == 0
    figures = json.loads(printed)
    assert figures["pods"] == 4
    assert figures["transport"] == transport
    assert figures["reports"] > 0
    assert 0 < figures["cycle_ms"] < 1_000
    assert figures["rss_mib"] > 10
    assert not [*ROOT.glob(f"koord-{bench.pid}-*"), *ROOT.glob(f"*/koord-{bench.pid}-*")]
