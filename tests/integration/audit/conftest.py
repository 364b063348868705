"""Fixtures: a writer of `cluster`, and a relay of it that a test starts."""

from collections.abc import AsyncIterator

import pytest

from cli.embedded import EmbeddedNats
from services.audit.settings import AuditSettings
from shared.bus import Bus
from shared.log.database import Database
from tests.integration.audit.relaying import Relaying
from tests.support.log_system import Writer


@pytest.fixture
async def bus(server: EmbeddedNats) -> AsyncIterator[Bus]:
    """The relay's connection."""
    started = Bus(server.url, name="audit")
    await started.start()
    yield started
    await started.close()


@pytest.fixture
async def writer(database: str) -> AsyncIterator[Writer]:
    """The writer of `cluster`."""
    started = await Writer(database, None, context="cluster").start()
    yield started
    await started.close()


@pytest.fixture
async def relaying(database: str, bus: Bus, writer: Writer) -> AsyncIterator[Relaying]:
    """A relay of `cluster` that is not started."""
    opened = Database(database)
    settings = AuditSettings(poll_interval_s=0.2, stream_mib=64)
    made = Relaying(opened, bus, writer, settings)
    yield made
    await made.stop()
    await opened.close()
