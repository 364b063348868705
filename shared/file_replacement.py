"""Replaces a file whole or not at all: a process that is killed meanwhile leaves the old one."""

import os
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, data: bytes, *, mode: int = 0o644, sync: bool = False) -> None:
    """Writes a new file beside `path`, and gives it that name.

    Args:
        mode: of the new file, less the umask; it has it before anything is in it.
        sync: the data are on the disk before the name changes: a crash of the machine, too, leaves one of the two.

    Raises:
        OSError: not replaced.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        error.filename = os.fspath(path)  # not the one beside it
        raise
