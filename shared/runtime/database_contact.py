"""A process's first statement on the log's database, which waits for a server that hangs and says so meanwhile."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from shared.log.database import FAILURES, parsed_dsn
from shared.log.unusable_database import unusable
from shared.runtime.task_cancellation import cancel_and_wait
from shared.unreachable import Unreachable

PATIENCE_S = 2.0
"""Seconds without a response after which a server counts as one that does not respond."""
RETRY_S = 1.0


class DatabaseContact:
    """The contact of a process that starts with the log's database.

    Attributes:
        unreachable: the silence at the moment, which began with the first statement; None while the server responds.
    """

    def __init__(self, dsn: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.unreachable: Unreachable | None = None
        self._dsn = dsn
        self._now_ns = now_ns

    async def responds(self, statement: Callable[[], Awaitable[object]], *, patience_s: float = PATIENCE_S) -> None:
        """Makes a statement, and repeats it while the server hangs: the end of the process would help nobody, and what it
        waits for would be known only between two starts.

        Raises:
            DatabaseUnreachable: no server is there.
            DatabaseRefused: the server refuses the statement.
        """
        url = parsed_dsn(self._dsn)
        silence = Unreachable(f"Postgres at {url.hostname}:{url.port or 5432}", self._now_ns(), "no response in time")
        while True:
            attempt = asyncio.ensure_future(statement())
            try:
                done, _ = await asyncio.wait({attempt}, timeout=patience_s)
                if not done:
                    self.unreachable = silence
                await attempt
            except TimeoutError:
                self.unreachable = silence
                await asyncio.sleep(RETRY_S)
                continue
            except FAILURES as error:
                raise unusable(self._dsn, error) from error
            finally:
                await cancel_and_wait(attempt)
            self.unreachable = None
            return
