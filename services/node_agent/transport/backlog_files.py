"""Reports that wait on disk while there is no connection: files of compressed reports, delivered oldest first.

Each file is one message (shared/agents/backlog.py), named `<order>.<number of reports>`. It is complete or absent, over
a loss of power too. The oldest files are dropped when all of them together exceed the limit.
"""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from shared.agents import backlog
from shared.file_replacement import replace_file

log = logging.getLogger(__name__)


class BacklogFiles:
    """The files of one folder.

    Attributes:
        bytes: of all files.
        dropped: reports of files that were dropped, or that could not be read.
    """

    def __init__(self, folder: Path, node: str, boot: str, limit_bytes: int) -> None:
        """Finds the files of earlier runs.

        Args:
            boot: names this run of the agent.
        """
        self.bytes = 0
        self.dropped = 0
        self._folder, self._node, self._boot, self._limit_bytes = folder, node, boot, limit_bytes
        self._seq = 0
        self._sizes: dict[str, int] = {}
        self._failing = False
        with contextlib.suppress(OSError):
            for path in sorted(folder.iterdir()):
                if path.suffix[1:].isdigit() and path.stem.isdigit():
                    self._sizes[path.name] = path.stat().st_size
                else:
                    path.unlink()  # of a write that did not end
        self.bytes = sum(self._sizes.values())

    @property
    def reports(self) -> int:
        """The number of reports in the files."""
        return sum(map(_reports_of, self._sizes))

    def put(self, reports: Sequence[bytes]) -> bool:
        """Writes a file; reports whether it is on disk. A disk that is full is logged once until it has space again."""
        last = max((int(name.partition(".")[0]) for name in self._sizes), default=0)
        name = f"{last + 1:012d}.{len(reports)}"
        data = backlog.encode(self._node, self._boot, self._seq + 1, reports)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(self._folder / name, data, sync=True)
        except OSError as error:
            if not self._failing:
                log.warning("reports cannot be kept on disk; they stay in memory", extra={"why": str(error)})
            self._failing = True
            return False
        self._failing = False
        self._seq += 1
        self._sizes[name] = len(data)
        self.bytes += len(data)
        while self.bytes > self._limit_bytes and len(self._sizes) > 1:
            self._drop(next(iter(self._sizes)), "the backlog of reports is full; the oldest are dropped")
        return True

    def first(self) -> tuple[str, bytes] | None:
        """Returns name and content of the oldest file; None without one."""
        while self._sizes:
            name = next(iter(self._sizes))
            try:
                return name, (self._folder / name).read_bytes()
            except OSError as error:
                self._drop(name, f"a file of kept reports cannot be read: {error}")
        return None

    def remove(self, name: str) -> None:
        """Removes a file whose message was accepted; it may have been dropped meanwhile."""
        self.bytes -= self._sizes.pop(name, 0)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def _drop(self, name: str, text: str) -> None:
        before = self.dropped
        self.dropped += _reports_of(name)
        self.remove(name)
        if before.bit_length() != self.dropped.bit_length():  # at each doubling
            details = {"dropped": self.dropped, "kept": self.reports, "limit_bytes": self._limit_bytes}
            log.warning(text, extra=details)


def _reports_of(name: str) -> int:
    return int(name.partition(".")[2])
