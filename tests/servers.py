"""Fixtures: one Postgres and one NATS for the whole session, and a fresh migrated database for each test that asks.

A test that kills, hangs or restores a server has one of its own (`server`, or `cli.embedded`): these are shared.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from cli.embedded import EmbeddedNats, EmbeddedPostgres
from cli.service_list import contexts
from shared.log.database import Database
from shared.log.migration import migrate
from tests.support.prepared_folders import copy_postgres

STARTERS = {"postgres", "nats", "server"}

_TEMPLATE = "migrated"
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a server of this file before `-m` selects."""
    for item in items:
        if STARTERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("servers")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedPostgres]:
    """A Postgres server for the session, with the settings of production: the doctor looks at them."""
    folder = copy_postgres(tmp_path_factory.mktemp("servers") / "postgres")
    async with EmbeddedPostgres(folder) as server:
        yield server


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedNats]:
    """A NATS server for the session. Tests that share it must tell their databases' subjects apart."""
    async with EmbeddedNats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedNats]:
    """A NATS of the test's own, to be stopped, wiped and filled."""
    async with EmbeddedNats(tmp_path / "nats") as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(postgres: EmbeddedPostgres) -> str:
    """The name of a migrated database that nobody is connected to."""
    database = Database(await postgres.create_database(_TEMPLATE))
    await migrate(database, contexts())
    await database.close()
    return _TEMPLATE


@pytest_asyncio.fixture
async def database(postgres: EmbeddedPostgres, template: str) -> AsyncIterator[str]:
    """The URL of a fresh migrated database, for KOORD_POSTGRES."""
    name = f"test_{next(_numbers)}"
    yield await postgres.create_database(name, template)
    await postgres.drop_database(name)
