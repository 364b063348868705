"""The rules of `make lint` apply in the right files: each rule is shown a file that breaks it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent

CLOCKS_AND_CHANCE = """
import random
import time
import uuid
from datetime import UTC, datetime

X = (random.random(), time.time(), datetime.now(UTC), uuid.uuid4())
"""


@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("services/quota_ledger/state/ledger_state.py", 4),
        ("services/quota_ledger/decide/charge.py", 4),
        ("services/quota_ledger/tree/aggregation.py", 4),
        ("services/slo_controller/overcommit/calculate.py", 4),
        ("services/slo_controller/state/slo_state.py", 4),
        ("services/simulator/api/api_transaction.py", 4),
        ("services/audit/decide_signed_checkpoint.py", 4),
        ("services/metrics_ingest/agent_reports/metrics_ingest_state.py", 4),
        ("services/simulator/state.py", 4),
        ("services/simulator/decide.py", 4),
        ("services/scheduler/plugins/spread.py", 4),
        ("services/scheduler/plugins/load_aware_scheduling/node_thresholds.py", 4),
        ("services/quota_ledger/service.py", 0),
        ("cli/top.py", 0),
    ],
)
def test_clocks_and_chance_are_forbidden_where_a_service_decides(file: str, found: int, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(CLOCKS_AND_CHANCE)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    command = [str(BIN / "ruff"), "check", "--no-cache", "--select=TID251", "--output-format=concise", file]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.count("TID251") == found, done


# The least that has every module the contracts name, and every library where it belongs.
SKELETON = {
    "cli/processes/free_ports.py": "import aiohttp, asyncio, http, socket, ssl, subprocess, threading",
    "migrations/env.py": "import alembic",
    "services/gateway/kube_api/client.py": "import kubernetes_asyncio",
    "services/audit/decide_signed_checkpoint.py": "",
    "services/audit/last_signed_checkpoint_state.py": "",
    "services/device_discovery/decide_device_object.py": "",
    "services/device_discovery/decide_inventory.py": "",
    "services/device_discovery/inventory_check.py": "",
    "services/device_discovery/repeated_inventory_check_and_rate_limit.py": "",
    "services/descheduler/configuration/read_configuration.py": "",
    "services/descheduler/framework/cycle.py": "",
    "services/descheduler/load_aware/classification.py": "",
    "services/descheduler/plugins/registry.py": "",
    "services/metrics_ingest/agent_actions/node_pods_and_actions_state.py": "",
    "services/metrics_ingest/agent_actions/decide_action.py": "",
    "services/metrics_ingest/agent_reports/decide_reports.py": "",
    "services/metrics_ingest/agent_reports/metrics_ingest_state.py": "",
    "shared/ingest/mqtt_session.py": "import aiomqtt",
    "services/node_agent/transport/mqtt_transport.py": "import aiomqtt",
    "services/scheduler/cache/node_table.py": "",
    "services/scheduler/configuration.py": "",
    "services/scheduler/cycle/cycle.py": "",
    "services/scheduler/explain/explain_pod.py": "",
    "services/scheduler/extender_server/http_api.py": "",
    "services/scheduler/framework/profile.py": "",
    "services/scheduler/in_memory_scheduler.py": "",
    "services/scheduler/kernels/merge_and_select_nodes.py": "",
    "services/scheduler/plugins/spread.py": "",
    "services/scheduler/queue/active_queue.py": "",
    "services/scheduler/quota/take_back_placements_without_quota.py": "",
    "services/scheduler/explain/quota_ledger_event_sentences.py": "",
    "services/scheduler/service.py": "",
    "services/scheduler/settings.py": "",
    "services/scheduler/shadow/compare.py": "",
    "services/scheduler/state/scheduler_state.py": "import numpy",
    "services/slo_controller/config/slo_configmap.py": "",
    "services/slo_controller/node_topology/zone_batch_resources.py": "",
    "services/slo_controller/overcommit/calculate.py": "",
    "services/slo_controller/recommendation.py": "",
    "services/simulator/decide.py": "",
    "services/simulator/state.py": "",
    "shared/agents/report.py": "",
    "shared/bus/bus.py": "import nats",
    "shared/events/base.py": "",
    "shared/runtime/health.py": "",
    "shared/log/writer.py": "import asyncpg, sqlalchemy",
    "shared/runtime/runner.py": "",
    "shared/runtime/service.py": "",
}


@pytest.mark.parametrize(
    ("file", "package", "broken"),
    [
        ("shared/runtime/service.py", "nats", ["Only the bus speaks to NATS"]),
        ("services/simulator/shell.py", "asyncpg", ["Only the log speaks to Postgres"]),
        ("cli/top.py", "kubernetes_asyncio", ["Only the gateway speaks to the Kubernetes API"]),
        ("services/gateway/shell.py", "services.simulator.state", ["No service imports another service"]),
        (
            "shared/rows.py",
            "services.gateway.kube_api.client",
            ["The command stands on the services, they on what they share"],
        ),
        ("services/gateway/shell.py", "aiomqtt", ["Only the inbox of agents' messages and the node agent speak MQTT"]),
        (
            "services/node_agent/collect_report_loop.py",
            "shared.runtime.service",
            ["The node agent knows neither the log nor events"],
        ),
        ("shared/agents/report.py", "numpy", ["The node agent knows neither the log nor events"]),
        ("services/simulator/decide.py", "asyncio", ["What a service decides knows no I/O"]),
        (
            "services/metrics_ingest/agent_actions/node_pods_and_actions_state.py",
            "asyncio",
            ["What a service decides knows no I/O"],
        ),
        ("services/scheduler/plugins/spread.py", "shared.runtime.service", ["What a service decides knows no I/O"]),
        ("services/scheduler/shell.py", "asyncio", []),
    ],
)
def test_imports_across_a_border_break_its_contract(file: str, package: str, broken: list[str], tmp_path: Path) -> None:
    for name, text in {**SKELETON, file: f"import {package}"}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
        for folder in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / "__init__.py").touch()
    shutil.copy(ROOT / ".importlinter", tmp_path)
    done = subprocess.run(
        [str(BIN / "lint-imports"), "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert [line.removesuffix(" BROKEN") for line in lines if line.endswith(" BROKEN")] == broken, done.stdout
    assert sum(line.endswith(" KEPT") for line in lines) == 9 - len(broken)
