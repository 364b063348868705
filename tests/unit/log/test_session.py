"""A database opened for a command: which errors are the server's, and which are not."""

import pytest

from shared.log.admin.session import opened
from shared.log.unusable_database import DatabaseUnreachable

NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


async def test_a_reader_that_has_seen_enough_is_no_fault_of_the_database() -> None:
    with pytest.raises(BrokenPipeError):
        async with opened(NOWHERE):
            raise BrokenPipeError


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(DatabaseUnreachable, match=r"127\.0\.0\.1:1/none cannot be reached"):
        async with opened(NOWHERE) as database, database.reading():
            pass


async def test_a_file_that_a_command_cannot_write_is_not_the_servers_fault() -> None:
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        async with opened("postgresql://127.0.0.1:1/none"):
            raise FileNotFoundError(2, "No such file or directory", "/nowhere")
