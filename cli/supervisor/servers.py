"""Postgres and NATS for a system on this machine: our own, or those that the environment names."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from cli.services import CONTEXTS

if TYPE_CHECKING:
    from cli.embedded import EmbeddedNats, EmbeddedPostgres


class Endpoints(msgspec.Struct, frozen=True):
    """Where the servers of a running system are.

    Attributes:
        pid: the process that keeps them.
    """

    postgres: str
    nats: str
    pid: int = 0


class Servers:
    """Starts what the environment (KOORD_POSTGRES, KOORD_NATS) does not name, below `directory`, and migrates the database.

    Attributes:
        own: name -> the servers that were started here.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.endpoints = Endpoints("", "")
        self.own: dict[str, EmbeddedNats | EmbeddedPostgres] = {}
        self._open = AsyncExitStack()

    async def mend(self) -> list[str]:
        """Start those of our own that have ended again, on their ports and with their data; their names.

        Raises:
            ProgramFailed: one does not start.
        """
        ended = [name for name, server in self.own.items() if not server.running]
        for name in ended:
            await self.own[name].start()
        return ended

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            postgres, nats = os.environ.get("KOORD_POSTGRES", ""), os.environ.get("KOORD_NATS", "")
            if not nats:
                from cli.embedded.nats import EmbeddedNats

                self.own["nats"] = await opening.enter_async_context(EmbeddedNats(self.directory / "nats"))
                nats = self.own["nats"].url
            if not postgres:
                from cli.embedded.postgres import EmbeddedPostgres

                self.own["postgres"] = await opening.enter_async_context(EmbeddedPostgres(self.directory / "postgres"))
                postgres = self.own["postgres"].url
            await migrate_to_this_release(postgres)
            self.endpoints = Endpoints(postgres, nats, os.getpid())
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()


async def migrate_to_this_release(postgres: str) -> None:
    """Bring a database to this release's schema; safe to repeat.

    Raises:
        KoordError: it cannot be reached, or refuses.
    """
    from shared.log.database import migrate
    from shared.log.session import opened

    async with opened(postgres) as database:
        await migrate(database, dict(CONTEXTS))
