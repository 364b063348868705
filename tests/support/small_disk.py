"""Postgres' write-ahead log on a small disk of its own, and what fills it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from cli.embedded import EmbeddedPostgres
from tests.support.waiting import wait_until

MIB = 2**20
ROOM = 64 * MIB


@contextmanager
def small_wal_disk(postgres: EmbeddedPostgres) -> Iterator[Path]:
    """Moves the write-ahead log of a Postgres that does not run to a disk with 64 MiB of room; returns its folder.

    The test is skipped where that is not permitted.
    """
    wal, kept = postgres.data / "pg_wal", postgres.directory.parent / "kept-wal"
    owner, size = wal.stat(), sum(file.stat().st_size for file in wal.rglob("*") if file.is_file())
    shutil.copytree(wal, kept)
    options = f"size={size + ROOM},uid={owner.st_uid},gid={owner.st_gid},mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(wal)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        shutil.copytree(kept, wal, dirs_exist_ok=True)
        subprocess.run(["chown", "-R", f"{owner.st_uid}:{owner.st_gid}", str(wal)], check=True)
        yield wal
    finally:
        unmount = ["umount", str(wal)]
        wait_until(lambda: subprocess.run(unmount, check=False, capture_output=True).returncode == 0, "the unmounting")


async def fill(url: str, wal: Path) -> Path:
    """Takes the room of the disk, and has Postgres write more than it has left.

    Returns:
        The file whose removal gives the room back.
    """
    filler = wal / "junk"
    with suppress(OSError), filler.open("wb", buffering=0) as junk:
        while junk.write(b"\0" * MIB) == MIB:
            pass
    with suppress(asyncpg.PostgresError, OSError):
        connection = await asyncpg.connect(url)
        await connection.execute("create table if not exists filler (content text storage external)")
        # In a transaction of its own: what a new table gets in its own one is not written ahead.
        await connection.execute("insert into filler select repeat(md5(n::text), 99) from generate_series(1, 99999) n")
    return filler
