"""Fixtures: a database with the contexts of these tests, its writer and its followers; with a bus of their own
(`server`), since subjects are shared.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cli.embedded import EmbeddedNats
from shared.bus import Bus
from tests.support.log_system import Copiers, Following, Writer, declare


@pytest.fixture
async def url(database: str) -> str:
    """A fresh database with the contexts `source` and `copy`."""
    await declare(database)
    return database


@pytest.fixture
async def bus(server: EmbeddedNats) -> AsyncIterator[Bus]:
    """The writer's connection."""
    started = Bus(server.url, name="writer")
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def follower_bus(server: EmbeddedNats) -> AsyncIterator[Bus]:
    """The follower's connection."""
    started = Bus(server.url, name="follower")
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def writer(url: str, bus: Bus) -> AsyncIterator[Writer]:
    """The writer of `source`."""
    started = await Writer(url, bus).start()
    yield started
    await started.close()


@pytest.fixture
async def following(url: str, follower_bus: Bus) -> AsyncIterator[Following]:
    """A follower that has not been started."""
    made = Following(url, follower_bus)
    yield made
    await made.close()


@pytest.fixture
async def copiers(url: str, server: EmbeddedNats, tmp_path: Path) -> AsyncIterator[Copiers]:
    """Copier processes."""
    made = Copiers(url, server.url, tmp_path)
    yield made
    await made.close()
