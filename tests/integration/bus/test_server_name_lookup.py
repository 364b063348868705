"""Lookup of the bus server's name: found, not found, and failed by a resolver that responds late."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

import shared
from cli.embedded import EmbeddedNats
from shared.bus import Bus
from shared.bus.login import Login
from tests.support.waiting import until

NOWHERE = "nats://no-such-host.invalid:4222"

# A nameserver that never responds: the lookup fails later than the timeout of a connection.
SILENT_RESOLVER = "nameserver 192.0.2.1\noptions timeout:1 attempts:3\n"
WAIT_IN_VAIN = f"""
import asyncio, gc, logging, uvloop
from shared.bus import Bus
logging.basicConfig(level=logging.WARNING)
async def main():
    bus = Bus({NOWHERE!r}, name="test")
    await bus.start()
    await asyncio.sleep(5)
    await bus.close()
    gc.collect()
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


async def test_a_server_is_found_by_its_name(server: EmbeddedNats) -> None:
    bus = Bus(f"nats://localhost:{server.port}", name="test")
    await bus.start()
    await until(lambda: bus.connected)
    await bus.close()


@pytest.mark.parametrize("address", ["nats://127.0.0.1:4222", "tls://[::1]:4222"])
async def test_an_address_needs_no_lookup(address: str) -> None:
    assert await Login.of(address).addresses() == [address]


async def test_a_name_without_an_address_is_reported_at_once(caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus(NOWHERE, name="test")
    with caplog.at_level(logging.WARNING):
        await bus.start()
        await until(lambda: bool(caplog.records))
        await bus.close()
    assert [record.getMessage() for record in caplog.records] == ["bus is not reachable"]
    assert "gaierror" in vars(caplog.records[0])["error"]


async def test_a_server_that_refuses_connections_is_reported_at_once(caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus("nats://127.0.0.1:1", name="test")
    with caplog.at_level(logging.WARNING):
        await bus.start()
        await until(lambda: bool(caplog.records))
        await bus.close()
    assert [record.getMessage() for record in caplog.records] == ["bus is not reachable"]
    assert "Connect" in vars(caplog.records[0])["error"]


def test_a_lookup_that_fails_late_is_reported_by_us(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text(SILENT_RESOLVER)
    alone = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"']
    command = [*alone, str(tmp_path / "resolv.conf"), sys.executable, "-c"]
    if subprocess.run([*command, "pass"], check=False, capture_output=True).returncode:
        pytest.skip("needs a mount namespace, to have a resolver of its own")
    folder = Path(shared.__file__).parents[1]
    ran = subprocess.run([*command, WAIT_IN_VAIN], check=False, capture_output=True, text=True, timeout=120, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "never retrieved" not in ran.stderr
    assert "bus is not reachable" in ran.stderr
