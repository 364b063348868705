"""A bus and a database with every login: of all services in two shards, of operator and auditor, and of two nodes."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import aiomqtt
import pytest
import pytest_asyncio

from cli.credentials.credentials_folder import read_env
from cli.service_list import SERVICES, manifest
from cli.supervisor.system_servers import Servers
from shared.runtime.manifest import Manifest
from tests.support.prepared_folders import copy_installation

NODES = ("node-a", "rack.1")
SHARDS = 2
SPY = "spy"
ACCOUNTS = ("CORE", "FIELD", "STREAMS")
"""Parts of the bus, in the order in which its configuration has them."""


class Secured(NamedTuple):
    """The addresses of the bus and the database, and the logins.

    Attributes:
        owner: the database with its owner's login.
        bus: `host:port`.
    """

    servers: Servers
    folder: Path
    owner: str
    bus: str

    def spy(self, account: str = "CORE") -> str:
        """Returns the bus for a test that may publish and subscribe to everything in an account; no such login exists
        elsewhere."""
        return f"nats://{SPY}-{account}:{SPY}@{self.bus}"

    def env(self, login: str) -> dict[str, str]:
        """Returns a login's variables."""
        place = self.folder / "nodes" / f"{login}.env"
        return read_env(place if place.exists() else self.folder / "env" / f"{login}.env")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Secured]:
    """Servers as `koord up` starts them, with logins for `spy`."""
    folder = tmp_path_factory.mktemp("secured")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KOORD_POSTGRES", "KOORD_NATS", "KOORD_MQTT", "KOORD_CREDENTIALS"):
            patch.delenv(name, raising=False)
        patch.setenv("KOORD_METRICS_SHARDS", str(SHARDS))
        async with Servers(copy_installation(folder), nodes=NODES) as servers:
            nats: Any = servers.own["nats"]
            head, *accounts = nats.users.split("users: [")
            spies = [
                f"users: [ {{ user: {SPY}-{name}, password: {SPY} }}{text}"
                for name, text in zip(ACCOUNTS, accounts, strict=True)
            ]
            nats.users = head + "".join(spies)
            await nats.stop()
            await nats.start()
            credentials = folder / "credentials"
            owner = read_env(credentials / "env" / "owner.env")["KOORD_POSTGRES"]
            yield Secured(servers, credentials, owner, f"127.0.0.1:{nats.port}")


def members(names: Iterable[str] = SERVICES) -> list[Manifest]:
    """Returns every declared service, and each shard of a sharded one."""
    found = map(manifest, names)
    return [one.member(shard, SHARDS) for one in found for shard in range(SHARDS if one.writes.endswith("-*") else 1)]


@asynccontextmanager
async def mqtt_client(secured: Secured, login: str, **more: object) -> AsyncIterator[aiomqtt.Client]:
    """Connects to the MQTT listener with a login."""
    parts = urlsplit(secured.env(login)["KOORD_MQTT"])
    settings = {"identifier": f"test-{login}", "clean_session": True, "timeout": 10, **more}
    async with aiomqtt.Client(
        parts.hostname or "",
        parts.port or 0,
        username=unquote(parts.username or ""),
        password=parts.password,
        **settings,  # type: ignore[arg-type]
    ) as opened:
        yield opened
