"""Postgres and NATS for a system on this machine: our own, or those that the environment names."""

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from cli.services import contexts

if TYPE_CHECKING:
    from cli.embedded import EmbeddedNats, EmbeddedPostgres


class Endpoints(msgspec.Struct, frozen=True):
    """Where the servers of a running system are.

    Attributes:
        pid: the process that keeps them.
        mqtt: empty when no broker is known.
        services: name of a process -> `host:port` of its pages.
    """

    postgres: str
    nats: str
    pid: int = 0
    mqtt: str = ""
    services: dict[str, str] = {}


class Servers:
    """Starts what the environment (KOORD_POSTGRES, KOORD_NATS, KOORD_MQTT) does not name, below `directory`, and migrates the database.

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
            mqtt = os.environ.get("KOORD_MQTT", "")
            if not nats:
                from cli.embedded.nats import EmbeddedNats

                self.own["nats"] = server = await opening.enter_async_context(EmbeddedNats(self.directory / "nats"))
                nats, mqtt = server.url, mqtt or server.mqtt_url
            if not postgres:
                from cli.embedded.postgres import EmbeddedPostgres

                self.own["postgres"] = await opening.enter_async_context(EmbeddedPostgres(self.directory / "postgres"))
                postgres = self.own["postgres"].url
            await migrate_to_this_release(postgres)
            self.endpoints = Endpoints(postgres, nats, os.getpid(), mqtt)
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
        await migrate(database, contexts())
