"""Logs that stay below a size: what a program has written moves to a file of its own, and the program writes on."""

import os
import shutil
from pathlib import Path

MAX_BYTES = 16 * 2**20
"""Of a log before it is rotated."""

KEPT = 3
"""Older logs: `<log>.1` is the newest of them."""


def rotate(log: Path, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> bool:
    """Moves the text of a log that has grown to `max_bytes` to `<log>.1`, that to `<log>.2` and so on; whether it was
    done.

    The program keeps its file, which must be open for appending, and goes on at its beginning. What it writes between
    the copy's end and the cut, some microseconds, is lost; that is the price of programs that need not reopen logs.
    """
    try:
        if log.stat().st_size < max_bytes:
            return False
    except FileNotFoundError:
        return False
    for number in range(kept - 1, 0, -1):
        older = _old(log, number)
        if older.exists():
            older.replace(_old(log, number + 1))
    unfinished = log.with_name(f"{log.name}.rotating")
    with log.open("rb") as source, unfinished.open("wb") as copy:
        shutil.copyfileobj(source, copy, 2**20)
        os.truncate(log, 0)
    unfinished.replace(_old(log, 1))
    return True


def _old(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")
