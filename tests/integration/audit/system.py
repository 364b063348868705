"""A small system of processes for the audit service's tests: simulator and audit under a supervisor, on servers of its own."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from click.testing import CliRunner, Result

from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.main import koord
from cli.services import contexts
from cli.supervisor.audit import with_audit
from cli.supervisor.servers import Endpoints
from cli.supervisor.supervisor import Spec, Supervisor
from shared.log.database import Database, migrate

SIMULATOR = Spec("simulator", "simulator", {"KOORD_SIMULATOR_NODES": "5", "KOORD_SIMULATOR_PODS": "20"})
AUDIT = Spec("audit", "audit", {"KOORD_AUDIT_CHECKPOINT_EVERY_S": "0.5", "KOORD_AUDIT_LOOK_EVERY_S": "0.3"})


class System:
    """Simulator and audit service; both servers can be restarted."""

    def __init__(self, folder: Path, specs: tuple[Spec, ...] = (SIMULATOR, AUDIT)) -> None:
        self.folder = folder
        self.nats = EmbeddedNats(folder / "nats")
        self.postgres = EmbeddedPostgres(folder / "postgres")
        self._specs = specs
        self.supervisor: Supervisor

    @property
    def checkpoints(self) -> Path:
        """Where the audit service writes them."""
        return self.folder / "audit" / "checkpoints"

    @property
    def public_key(self) -> Path:
        """Whose private part signs them."""
        return self.folder / "audit" / "audit.pub"

    async def koord(self, *arguments: str) -> Result:
        """Run a command against this system."""
        env = {"KOORD_POSTGRES": self.postgres.url, "KOORD_NATS": self.nats.url}
        return await asyncio.to_thread(CliRunner().invoke, koord, arguments, env=env)

    async def wait(self, true: Callable[[], bool | Awaitable[bool]], deadline_s: float = 60) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: it does not; with what the services are doing.
        """
        ends = time.monotonic() + deadline_s
        while True:
            found = true()
            if found if isinstance(found, bool) else await found:
                return
            assert time.monotonic() < ends, self.supervisor.describe()
            await asyncio.sleep(0.05)

    async def __aenter__(self) -> Self:
        await self.nats.start()
        await self.postgres.start()
        database = Database(self.postgres.url)
        await migrate(database, contexts())
        await database.close()
        endpoints = Endpoints(self.postgres.url, self.nats.url)
        specs = with_audit(self._specs, self.folder)
        self.supervisor = Supervisor(specs, endpoints, self.folder, log_level="warning")
        await self.supervisor.start()
        await self.supervisor.wait_leading()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.stop()
        await self.postgres.stop()
        await self.nats.stop()
