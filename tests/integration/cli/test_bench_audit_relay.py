"""koord bench relay, small: every event reaches the subscriber, and the figures are printed."""

import asyncio
import json
import subprocess
import sys


async def test_every_event_of_the_log_reaches_the_subscriber() -> None:
    command = [
        sys.executable,
        "-m",
        "cli",
        "bench",
        "relay",
        "--events",
        "2000",
        "--seconds",
        "1",
        "--rate",
        "20",
        "--json",
    ]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["relay_per_s"] > 0
    assert 0 < figures["lag_p50_ms"] <= figures["lag_p99_ms"]
    assert figures["message_bytes"] > figures["event_bytes"]
