"""`koord run node-agent` as a process on this machine, and its pages."""

import os
import sys
import urllib.request
from pathlib import Path

import cli
from cli.embedded import EmbeddedNats
from cli.processes.child_process import Process

NODE = "this.node"

DEADLINE_S = 60.0


def an_agent(folder: Path, nats: EmbeddedNats | None, **settings: str) -> Process:
    env = {name: value for name, value in os.environ.items() if not name.startswith("KOORD_")}
    env |= {
        "PYTHONPATH": str(Path(cli.__file__).parents[1]),
        "KOORD_NATS": nats.url if nats else "nats://127.0.0.1:1",
        "KOORD_MQTT": nats.mqtt_url if nats else "",
        "KOORD_NODE_AGENT_NODE": NODE,
        "KOORD_NODE_AGENT_COLLECT_INTERVAL_S": "0.2",
        "KOORD_NODE_AGENT_REPORT_INTERVAL_S": "1",
        "KOORD_NODE_AGENT_STATE_DIR": str(folder / "state"),
    }
    command = [sys.executable, "-P", "-m", "cli", "run", "node-agent"]
    return Process("node-agent", command, folder / "agent.log", env=env | settings)


def page(http: str, name: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{http}/{name}", timeout=5) as page:
            return str(page.read().decode())
    except OSError:
        return ""
