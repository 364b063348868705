"""A configuration file, read again at an interval."""

import asyncio
import logging
from pathlib import Path

from shared.kube.instants import SECOND

log = logging.getLogger(__name__)


class ConfigFile:
    """The configuration file of a service, if it has one."""

    def __init__(self, path: str, interval_s: float) -> None:
        """There is no file when the path is empty."""
        self._path = path
        self._interval_ns = int(interval_s * SECOND)
        self._read_ns = 0
        self._text: str | None = None

    @property
    def source(self) -> str:
        """Names the file in records."""
        return f"file {self._path}"

    async def read(self, now_ns: int) -> str | None:
        """Returns the file's text; the last one while it cannot be read, for a file that is being replaced is absent
        for a moment.
        """
        if self._path and not self._read_ns <= now_ns < self._read_ns + self._interval_ns:  # a clock may be set back
            self._read_ns = now_ns
            try:
                self._text = await asyncio.to_thread(Path(self._path).read_text)
            except (OSError, UnicodeDecodeError) as error:
                log.warning("the configuration file cannot be read", extra={"file": self._path, "error": str(error)})
        return self._text
