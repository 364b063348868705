"""A small system for the audit service's tests: simulator and audit under a supervisor, on servers of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from click.testing import CliRunner, Result

from cli.credentials.credentials_folder import env_file, read_env
from cli.credentials.permissions import AUDITOR
from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.main import koord
from cli.supervisor.audit_key import with_audit
from cli.supervisor.supervisor import Spec, Supervisor
from cli.supervisor.system_servers import Servers
from tests.support.prepared_folders import copy_installation
from tests.support.waiting import until

SIMULATOR = Spec("simulator", "simulator", {"KOORD_SIMULATOR_NODES": "5", "KOORD_SIMULATOR_PODS": "20"})
AUDIT = Spec("audit", "audit", {"KOORD_AUDIT_CHECKPOINT_INTERVAL_S": "0.5", "KOORD_AUDIT_POLL_INTERVAL_S": "0.3"})


class System:
    """Simulator and audit service, each with its own login; both servers can be restarted.

    Attributes:
        auditor: the environment of the auditor's login.
        owner: the database with its owner's login, for a test that alters it.
    """

    nats: EmbeddedNats
    postgres: EmbeddedPostgres
    supervisor: Supervisor

    def __init__(self, folder: Path, specs: tuple[Spec, ...] = (SIMULATOR, AUDIT)) -> None:
        self.folder = folder
        self._servers = Servers(copy_installation(folder), alone=True)
        self._specs = specs
        self.auditor: dict[str, str] = {}
        self.owner = ""

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "audit" / "checkpoints"

    @property
    def public_key(self) -> Path:
        """The public key of the signing key."""
        return self.folder / "audit" / "audit.pub"

    def login(self, name: str) -> dict[str, str]:
        """Returns the environment of a login."""
        return dict(read_env(env_file(Path(self._servers.endpoints.credentials), name)))

    async def koord(self, *arguments: str, database: str = "") -> Result:
        """Runs a command with the operator's login, on the system's database unless another one is given."""
        postgres = self._servers.endpoints.postgres
        if database:
            postgres = f"{postgres.rpartition('/')[0]}/{database}"
        env = {"KOORD_POSTGRES": postgres, "KOORD_NATS": self._servers.endpoints.nats}
        return await asyncio.to_thread(CliRunner().invoke, koord, arguments, env=env)

    async def wait(self, holds: Callable[[], bool | Awaitable[bool]]) -> None:
        """Waits until something holds.

        Raises:
            AssertionError: it does not in time; with the state of the services.
        """
        try:
            await until(holds)
        except AssertionError as late:
            late.add_note(self.supervisor.describe())
            raise

    async def __aenter__(self) -> Self:
        await self._servers.__aenter__()
        nats, postgres = self._servers.own["nats"], self._servers.own["postgres"]
        assert isinstance(nats, EmbeddedNats)
        assert isinstance(postgres, EmbeddedPostgres)
        self.nats, self.postgres, self.owner = nats, postgres, postgres.url
        self.auditor = self.login(AUDITOR)
        specs = with_audit(self._specs, self.folder)
        self.supervisor = Supervisor(specs, self._servers.endpoints, self.folder, log_level="warning")
        await self.supervisor.start()
        await self.supervisor.wait_leading()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.supervisor.stop()
        await self._servers.__aexit__()
