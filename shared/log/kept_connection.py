"""A connection that is kept for single values: one round trip each.

A connection from the pool may be busy, or new. A follower looks up a digest for each
batch that arrives, before it folds it, and waits for nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

DEADLINE_S = 5.0


class KeptConnection:
    """A connection that is opened at the first use, and again after a failure.

    `connect` is that of `shared.log.database`, which owns it.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._serial = asyncio.Lock()  # one statement at a time on the one connection

    async def value(self, sql: str, *parameters: object) -> Any:
        """Returns the one value that a statement selects, None without a row; raises as any read does."""
        async with self._serial:
            try:
                async with asyncio.timeout(DEADLINE_S):
                    if self._connection is None:
                        self._connection = await self._connect()
                    return await self._connection.fetchval(sql, *parameters)
            except BaseException:  # a cancelled one too: its answer may still arrive
                await self.close()
                raise

    async def close(self) -> None:
        """Ends the connection, without waiting for a server that hangs."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
