"""Original values of files that the agent wrote, kept in a file, so that a crash does not lose them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shared.file_replacement import replace_file
from shared.kube.json_text import decode_with

log = logging.getLogger(__name__)

FILE = "original-values.jsonl"

Key = tuple[str, str]
"""(knob, folder)."""

_line = msgspec.json.Decoder(tuple[str, str, str])


class OriginalValues:
    """The original value of each file, and the last one of ours.

    The state file has a line (knob, folder, original value) for each. Our values are not stored: after a restart, the
    value in a file counts as ours once it is again the desired one.
    """

    def __init__(self, state_dir: Path | None = None, file: str = FILE) -> None:
        self._file = state_dir / file if state_dir else None
        self._before: dict[Key, str] = {}
        self._ours: dict[Key, str] = {}
        self._unwritable = False

    def load(self) -> None:
        """Loads the values left by a run that was killed."""
        if self._file is None or not self._file.exists():
            return
        try:
            for line in self._file.read_bytes().splitlines():
                knob, folder, before = decode_with(_line, line)
                self._before.setdefault((knob, folder), before)
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("original values of cgroups are incomplete", extra={"file": str(self._file), "why": str(error)})

    def remember(self, key: Key, before: str, ours: str) -> None:
        """Records a write; the first one of a file records its original value."""
        self._ours[key] = ours
        if key not in self._before:
            self._before[key] = before
            self._append(key, before)

    def forget(self, folders: frozenset[str]) -> None:
        """Drops the values of cgroups that are gone."""
        gone = [key for key in self._before if key[1] in folders]
        for key in gone:
            del self._before[key]
            self._ours.pop(key, None)
        if gone:
            self._rewrite()

    def entries(self) -> Iterator[tuple[Key, tuple[str, str]]]:
        """Yields (knob, folder) -> (original value, last written value), of files whose last value is recorded."""
        for key, before in list(self._before.items()):
            if (ours := self._ours.get(key)) is not None:
                yield key, (before, ours)

    def adopt(self, key: Key, ours: str) -> None:
        """Records that a file which an earlier run wrote holds `ours`."""
        if key in self._before:
            self._ours.setdefault(key, ours)

    def clear(self) -> None:
        """Drops everything, after all values were restored."""
        self._before.clear()
        self._ours.clear()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _append(self, key: Key, before: str) -> None:
        if self._file is None or self._unwritable:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode((*key, before)) + b"\n")
        except OSError as error:
            self._unwritable = True
            log.warning("original values of cgroups cannot be kept over a crash", extra={"why": str(error)})

    def _rewrite(self) -> None:
        if self._file is None or self._unwritable:
            return
        try:
            lines = (msgspec.json.encode((*key, before)) + b"\n" for key, before in self._before.items())
            replace_file(self._file, b"".join(lines))
        except OSError as error:
            self._unwritable = True
            log.warning("original values of cgroups cannot be kept over a crash", extra={"why": str(error)})
