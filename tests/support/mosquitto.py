"""Mosquitto as a broker for tests: Debian's package `mosquitto` (apt-get install mosquitto)."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from cli.processes.child_process import Process
from cli.processes.free_ports import free_port

_CONFIGURATION = """\
listener {port} 127.0.0.1
allow_anonymous true
user root
persistence true
persistence_location {directory}/
max_queued_messages 100000
"""


class Mosquitto:
    """One broker on loopback; `start` after `stop` keeps port and sessions."""

    def __init__(self, directory: Path, acl: str = "") -> None:
        """Writes its configuration.

        Args:
            acl: rights of logins; without it every client has all rights.
        """
        directory.mkdir()
        self.port = free_port()
        configuration = _CONFIGURATION.format(port=self.port, directory=directory)
        if acl:
            (directory / "acl").write_text(acl)
            configuration += f"acl_file {directory}/acl\n"
        (directory / "mosquitto.conf").write_text(configuration)
        self._process = Process(
            "mosquitto", [program(), "-c", directory / "mosquitto.conf"], directory / "mosquitto.log"
        )

    @property
    def url(self) -> str:
        """The value of KOORD_MQTT."""
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it and waits until it accepts connections."""
        self._process.start()
        self._process.wait_until(self._listens, 10)

    def stop(self) -> None:
        """Stops it; it writes its sessions to disk."""
        self._process.stop()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True


def program() -> str:
    """Returns the broker's program; without it the test is skipped, or fails under KOORD_REQUIRE_MOSQUITTO=1."""
    found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found:
        return found
    reason = "mosquitto is not installed: apt-get install mosquitto"
    if os.environ.get("KOORD_REQUIRE_MOSQUITTO") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
