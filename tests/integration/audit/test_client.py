"""The client program of docs/audit.md, unchanged, against the real system: with nats-py and cloudevents."""

import re
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest

from cli.processes.child_process import Process
from shared.bus import Bus
from shared.bus.jetstream import Streams
from tests.integration.audit.system import AUDIT, SIMULATOR, System

GUIDE = Path(__file__).parents[3] / "docs" / "audit.md"
CONTEXTS = ("cluster", "audit")


def programs(folder: Path) -> None:
    """Writes the guide's programs into a folder, under the names in their first lines."""
    found = re.findall(r"```python\n(# (\w+\.py):.*?)```", GUIDE.read_text(), re.DOTALL)
    assert [name for _, name in found] == ["chain.py", "follow.py"]
    for program, name in found:
        (folder / name).write_text(program)
    body = [line for line in found[0][0].splitlines() if line.strip() and not line.startswith(("#", "import", "from"))]
    assert len(body) <= 20, "the guide promises twenty lines"


KILLED = 9
KILLED_WHILE_IT_WRITES = f"""
import os, pathlib

def write_text(path, text):
    with path.open("w") as file:
        file.write(text[:1])
    os._exit({KILLED})

pathlib.Path.write_text = write_text
"""


class Client:
    """follow.py as a process; its output is kept over its restarts."""

    def __init__(self, system: System, folder: Path, *, log: str = "client.log", path: Path | None = None) -> None:
        """Args:
        path: a folder of modules that Python loads first.
        """
        programs(folder)
        command = [sys.executable, "follow.py", "test", *CONTEXTS]
        env = {**system.auditor, "PATH": "/usr/bin:/bin", "PYTHONPATH": f"{path or folder}:{folder}"}
        command[1] = str(folder / "follow.py")
        self.process = Process("client", ["/usr/bin/env", "-C", str(folder), *command], folder / log, env=env)

    def seqs(self, context: str) -> list[int]:
        """Returns the seqs that the client printed for a context."""
        log = self.process.log.read_text() if self.process.log.exists() else ""
        return [int(seq) for seq in re.findall(rf"^{context}/(\d+) \S+ \S+", log, re.MULTILINE)]

    def complete(self, *, kills: int = 0) -> bool:
        """Reports whether each context was printed from the first event on, in order, without a gap.

        Events are printed once more only after a kill, where their position had not been kept yet.
        """
        for context in CONTEXTS:
            seqs = self.seqs(context)
            steps = [after - before for before, after in pairwise([0, *seqs])]
            if any(step > 1 for step in steps) or sum(step < 1 for step in steps) > kills:
                return False
        return True


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[System]:
    async with System(tmp_path) as running:
        yield running


@pytest.fixture
async def client(system: System, tmp_path: Path) -> AsyncIterator[Client]:
    folder = tmp_path / "client"
    folder.mkdir()
    made = Client(system, folder)
    made.process.start()
    yield made
    made.process.kill()


async def head(system: System, context: str) -> int:
    connection = await asyncpg.connect(system.owner)
    try:
        return int(await connection.fetchval("select coalesce(max(seq), 0) from events where context = $1", context))
    finally:
        await connection.close()


async def reaches(system: System, client: Client, *, kills: int = 0) -> None:
    """Waits until the client has printed all current events of the log, each once but for kills, and without a gap."""
    for context in CONTEXTS:
        upto = await head(system, context)

        def printed(context: str = context, upto: int = upto) -> bool:
            assert client.process.running, client.process.tail(20)
            return max(client.seqs(context), default=0) >= upto

        await system.wait(printed)
    assert client.complete(kills=kills), client.process.tail(20)


async def test_a_client_of_the_guide_misses_nothing_and_verifies_everything(system: System, client: Client) -> None:
    await reaches(system, client)
    await system.nats.restart()
    await reaches(system, client)
    client.process.kill()
    client.process.start()
    await reaches(system, client, kills=1)
    assert "gap" not in client.process.log.read_text()


async def test_a_client_of_the_guide_keeps_its_position_when_it_is_killed_while_it_writes_it(
    system: System, client: Client, tmp_path: Path
) -> None:
    await reaches(system, client)
    client.process.kill()
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "sitecustomize.py").write_text(KILLED_WHILE_IT_WRITES)
    killed = Client(system, tmp_path / "client", log="killed.log", path=tmp_path / "killed")
    killed.process.start()
    await system.wait(lambda: not killed.process.running)
    assert killed.process.exit_code == KILLED
    client.process.start()
    await reaches(system, client, kills=1)
    assert "gap" not in client.process.log.read_text()


async def test_a_client_of_the_guide_outlasts_streams_that_are_purged_and_deleted(
    system: System, client: Client
) -> None:
    await reaches(system, client)
    bus = Bus(operator(system), name="audit")
    await bus.start()
    streams = Streams(bus)
    await streams.purge("KOORD_EVENTS_AUDIT")
    await reaches(system, client)
    await streams.delete("KOORD_EVENTS_AUDIT")
    await reaches(system, client)
    await bus.close()
    assert "gap" not in client.process.log.read_text()


async def test_a_client_of_the_guide_continues_after_the_database_and_the_service_restart(
    system: System, client: Client
) -> None:
    await reaches(system, client)
    system.supervisor.kill("audit")
    await system.postgres.restart()
    await system.supervisor.wait_leading()
    await reaches(system, client)


async def test_a_client_of_the_guide_notices_an_event_that_was_altered(system: System, client: Client) -> None:
    await reaches(system, client)
    client.process.kill()
    upto = client.seqs("audit")[-1]

    async def there_is_more() -> bool:
        return await head(system, "audit") > upto

    await system.wait(there_is_more)
    connection = await asyncpg.connect(system.owner)
    await connection.execute("update events_audit set actor = 'somebody else' where seq = $1", upto + 1)
    await connection.close()
    bus = Bus(operator(system), name="audit")
    await bus.start()
    await Streams(bus).purge("KOORD_EVENTS_AUDIT")
    await bus.close()
    client.process.start()
    await system.wait(lambda: not client.process.running)
    assert f"audit/{upto + 1} does not fit the event before it" in client.process.log.read_text()


async def test_a_client_of_the_guide_continues_when_a_standby_takes_over(tmp_path: Path) -> None:
    second = AUDIT._replace(name="audit-2")
    async with System(tmp_path, (SIMULATOR, AUDIT, second)) as system:
        folder = tmp_path / "client"
        folder.mkdir()
        client = Client(system, folder)
        client.process.start()
        try:
            await reaches(system, client)
            [leader] = [name for name in ("audit", "audit-2") if system.supervisor.units[name].state == "leading"]
            other = system.supervisor.units["audit" if leader == "audit-2" else "audit-2"]
            system.supervisor.kill(leader)
            await system.wait(lambda: other.state == "leading")
            await reaches(system, client)
        finally:
            client.process.kill()


def operator(system: System) -> str:
    """The bus with the audit service's own login, which alone may empty its streams."""
    return system.login("audit")["KOORD_NATS"]
