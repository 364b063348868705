"""A log in a real database, and the commands that read it."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from click.testing import CliRunner, Result

from cli.main import koord
from shared.events import Draft, Event
from shared.events.scheduling import PodPlaced
from shared.log.database import Database
from shared.log.writer import LogWriter

NOW_NS = 1_800_000_000_000_000_000


class Log(NamedTuple):
    url: str

    def koord(self, *arguments: str) -> Result:
        return CliRunner().invoke(
            koord, arguments, env={"KOORD_POSTGRES": self.url, "KOORD_NATS": "nats://127.0.0.1:1"}
        )


async def append(
    url: str, context: str, drafts: list[Draft], now_ns: int = NOW_NS, emits: Sequence[type[Event]] = ()
) -> None:
    database = Database(url)
    writer = LogWriter(database, None, context, "test@1")
    await writer.acquire()
    await writer.begin("0", emits, now_ns=now_ns, seen={})
    await writer.append(drafts, now_ns=now_ns, seen={}, config="")
    await writer.close()
    await database.close()


def placed(pod: str, node: str) -> Draft:
    return Draft(PodPlaced(pod_uid=f"uid-{pod}", pod=f"default/{pod}", node=node, cycle=1, request={"cpu": 500}))


async def run(log: Log, *arguments: str) -> Result:
    return await asyncio.to_thread(log.koord, *arguments)
