"""Postgres and NATS for a system on this machine: our own, or those that the environment names."""

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from cli.processes.child_process import ProgramFailed
from cli.processes.log_rotation import rotate
from cli.service_list import SERVICES, contexts, metrics_shards
from cli.supervisor.endpoints import Endpoints
from cli.supervisor.restart_backoff import next_delay
from cli.supervisor.system_folder import wal_on_another_disk
from cli.terminal.awaited import Awaited
from shared.errors import KoordError

if TYPE_CHECKING:
    from cli.credentials.credentials_folder import Reach
    from cli.credentials.local_logins import Access
    from cli.embedded import EmbeddedNats, EmbeddedPostgres

CREDENTIALS = "KOORD_CREDENTIALS"
"""The folder of `koord credentials init`, for servers that are not our own."""
TABLES = "making the tables of the log"


class Failing(NamedTuple):
    """A server that does not start.

    Attributes:
        why: with the end of its log.
        delay_s: between the last try and the next one, which is at `next_at` of the monotonic clock.
    """

    why: str
    delay_s: float
    next_at: float


class Servers:
    """Starts what the environment (KOORD_POSTGRES, KOORD_NATS, KOORD_MQTT) does not name, below `directory`, and
    migrates the database.

    Servers of our own know a login for each service, made from its declaration.

    Attributes:
        own: name -> the servers that were started here.
        failing: name -> why a server that ended does not start again.
    """

    def __init__(
        self, directory: Path, *, nodes: Sequence[str] = (), alone: bool = False, awaited: Awaited | None = None
    ) -> None:
        """Prepares the servers; they start with the context.

        Args:
            nodes: nodes whose agents get a login.
            alone: whether all servers are our own, whatever the environment names.
            awaited: records what is being started.
        """
        self._during = (awaited or Awaited()).during
        self.directory = directory
        self.endpoints = Endpoints("", "")
        self.own: dict[str, EmbeddedNats | EmbeddedPostgres] = {}
        self.failing: dict[str, Failing] = {}
        self._nodes = nodes
        self._environment = {} if alone else dict(os.environ)
        self._nats: EmbeddedNats | None = None
        self._postgres: EmbeddedPostgres | None = None
        self._access: Access | None = None
        self._open = AsyncExitStack()

    @property
    def disk_settings(self) -> dict[str, str]:
        """Returns the settings by which services watch the disks of a Postgres of our own, unless they are given."""
        if self._postgres is None:
            return {}
        folder, given, found = self._postgres.directory, self._environment, dict[str, str]()
        if not (given.get("KOORD_DISK_PATH") or given.get("KOORD_DISK_GB")):
            found["KOORD_DISK_PATH"] = str(folder)
        if not given.get("KOORD_WAL_DISK_PATH") and (wal := wal_on_another_disk(folder)) is not None:
            found["KOORD_WAL_DISK_PATH"] = str(wal)
        return found

    @property
    def postgres_pid(self) -> int | None:
        """Returns the process id of a Postgres of our own while it exists."""
        return self._postgres.pid if self._postgres else None

    @property
    def nats_pid(self) -> int | None:
        """Returns the process id of a NATS of our own while it exists."""
        return self._nats.process.pid if self._nats else None

    async def mend(self) -> list[str]:
        """Starts those of our own that have ended again, on their ports and with their data; returns their names.

        One that does not start, as Postgres on a full disk, is tried again at growing intervals, and is in `failing`
        until it does. A login that was added meanwhile (`koord credentials node`) is let in, and a log that has grown
        large is rotated.
        """
        ended = [name for name, server in self.own.items() if not server.running]
        if self._access and self._access.changed():
            self._write()
            if self._nats and "nats" not in ended:
                self._nats.reload()
        for server in self.own.values():
            await asyncio.to_thread(rotate, server.log)
        return [name for name in ended if await self._start_again(name)]

    async def _start_again(self, name: str) -> bool:
        """Starts a server that has ended, unless it was tried just now; returns whether it runs."""
        before, now = self.failing.get(name), time.monotonic()
        if before is not None and now < before.next_at:
            return False
        try:
            await self.own[name].start()
        except ProgramFailed as error:
            delay_s = next_delay(before.delay_s if before is not None else 0.0, 0.0)
            self.failing[name] = Failing(str(error), delay_s, time.monotonic() + delay_s)
            return False
        self.failing.pop(name, None)
        return True

    async def create_database(self, name: str) -> Endpoints:
        """One more database on a Postgres of our own, migrated; where it is."""
        assert self._postgres, "a server of our own"
        assert self._access
        await migrate_to_this_release(await self._postgres.create_database(name))
        before, _, _ = self.endpoints.postgres.rpartition("/")
        return msgspec.structs.replace(self.endpoints, postgres=f"{before}/{name}")

    async def __aenter__(self) -> Self:
        given = self._environment.get(CREDENTIALS, "")
        async with AsyncExitStack() as opening:
            if given:
                await self._take(Path(given))
            else:
                await self._start(opening)
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def _take(self, folder: Path) -> None:
        """Servers that run elsewhere, with logins from a folder."""
        from cli.credentials.credentials_folder import env_file, read_env
        from cli.credentials.permissions import OPERATOR
        from cli.credentials.secrets_file import OWNER

        owner = env_file(folder, OWNER)
        if owner.exists():
            with self._during(TABLES):
                await migrate_to_this_release(read_env(owner)["KOORD_POSTGRES"])
        found = read_env(env_file(folder, OPERATOR))
        self.endpoints = Endpoints(found["KOORD_POSTGRES"], found["KOORD_NATS"], os.getpid(), credentials=str(folder))

    async def _start(self, opening: AsyncExitStack) -> None:
        postgres, nats = self._environment.get("KOORD_POSTGRES", ""), self._environment.get("KOORD_NATS", "")
        mqtt = self._environment.get("KOORD_MQTT", "")
        if postgres and nats:
            with self._during(TABLES):
                await migrate_to_this_release(postgres)
            self.endpoints = Endpoints(postgres, nats, os.getpid(), mqtt)
            return
        from cli.credentials.local_logins import Access

        self._access = Access(self.directory / "credentials", metrics_shards(), self._nodes)
        self._access.load()
        if not postgres:
            from cli.embedded.postgres import EmbeddedPostgres

            self._postgres = EmbeddedPostgres(self.directory / "postgres")
            made = "" if (self._postgres.data / "PG_VERSION").exists() else " (its data folder is made first)"
            with self._during(f"starting Postgres{made}"):
                self.own["postgres"] = await opening.enter_async_context(self._postgres)
        if not nats:
            from cli.embedded.nats import EmbeddedNats

            self._nats = EmbeddedNats(self.directory / "nats")
            self._nats.users = self._access.users()
            with self._during("starting NATS"):
                self.own["nats"] = await opening.enter_async_context(self._nats)
        if self._postgres:
            with self._during("making the logins of the services"):
                await self._access.make_roles(self._postgres.url)
        with self._during(TABLES):
            await migrate_to_this_release(self._postgres.url if self._postgres else postgres)
        self._write()

    def _write(self) -> None:
        """Gives each login its file, and the operator's to the commands."""
        from cli.credentials.credentials_folder import env_file, read_env
        from cli.credentials.permissions import OPERATOR

        assert self._access
        owner = self._postgres.url if self._postgres else self._environment["KOORD_POSTGRES"]
        if self._nats:
            self._nats.users = self._access.users()
        self._access.write(self._reach(), owner)
        found = read_env(env_file(self._access.folder, OPERATOR))
        mqtt = self._nats.mqtt_url if self._nats else ""
        self.endpoints = Endpoints(
            found["KOORD_POSTGRES"],
            found["KOORD_NATS"],
            os.getpid(),
            self._environment.get("KOORD_MQTT", "") or mqtt,
            credentials=str(self._access.folder.absolute()),
        )

    def _reach(self) -> "Reach":
        from cli.credentials.credentials_folder import Reach

        mqtt = f"127.0.0.1:{self._nats.mqtt_port}" if self._nats else ""
        return Reach(
            self._postgres.place_of() if self._postgres else self._environment["KOORD_POSTGRES"],
            f"127.0.0.1:{self._nats.port}" if self._nats else self._environment["KOORD_NATS"],
            self._environment.get("KOORD_MQTT", "") or mqtt,
        )


async def migrate_to_this_release(postgres: str) -> None:
    """Brings a database to this release's schema, and its roles to the rights of this release; safe to repeat.

    Args:
        postgres: the owner's URL.

    Raises:
        KoordError: it cannot be reached, or refuses.
    """
    from cli.credentials.grants_at_migration import grant
    from cli.credentials.permissions import declared_logins
    from shared.log.admin.session import opened
    from shared.log.database import DatabaseDenied, without_password
    from shared.log.migration import migrate

    async with opened(postgres) as database:
        try:
            await migrate(database, contexts())
            await grant(database, declared_logins(SERVICES, metrics_shards()))
        except DatabaseDenied as error:
            if error.is_login:
                raise
            where = f"Postgres at {without_password(postgres)}"
            remedy = "give the owner's login in KOORD_POSTGRES: env/owner.env of the credentials' folder has it"
            raise KoordError(f"{where} lets this login migrate nothing: {error.reason}; {remedy}") from error
