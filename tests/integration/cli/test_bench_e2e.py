"""`koord bench e2e` as a user runs it, at a small scale."""

import json
import os
import subprocess
import sys

import pytest

KEYS = {"pods_per_s", "latency_p50_s", "latency_p99_s", "api", "scheduler"}


def bench(*arguments: str) -> dict[str, object]:
    environment = {name: value for name, value in os.environ.items() if name not in {"KOORD_POSTGRES", "KOORD_NATS"}}
    done = subprocess.run(
        [sys.executable, "-m", "cli", "bench", "e2e", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_pods_are_bound_on_the_simulator() -> None:
    found = bench("--nodes", "10", "--pods", "200", "--turns", "1")
    assert found.keys() >= KEYS
    assert (found["api"], found["scheduler"], found["nodes"], found["pods"]) == (
        "simulator",
        "koord-scheduler",
        10,
        200,
    )
    assert 0 <= float(str(found["latency_p50_s"])) <= float(str(found["latency_p99_s"]))


@pytest.mark.kube
def test_pods_are_bound_on_a_kube_apiserver(pytestconfig: pytest.Config) -> None:
    from tests.cluster.fixtures import require_programs

    require_programs(pytestconfig)
    found = bench("--nodes", "5", "--pods", "100", "--turns", "1", "--api", "kube", "--gang-size", "8")
    assert (found["api"], found["pods"], found["gang_size"]) == ("kube", 100, 8)
    gangs = found["gangs"]
    assert isinstance(gangs, dict), "the same pods in gangs, the last one smaller, are bound too"
    assert found["gang_ratio"] == round(gangs["pods_per_s"] / float(str(found["pods_per_s"])), 3)
