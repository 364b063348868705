"""Snapshots without a pause: a forked child encodes the State as it was at the fork while the parent folds on.

The child shares the parent's memory copy-on-write, touches no event loop, closes every inherited connection (while one
is open in two processes the server does not notice that the parent is gone, and keeps its lock), and ends with `_exit`.
"""

import asyncio
import contextlib
import gc
import os
import signal
import traceback
from hashlib import sha256

import zstandard

from shared.errors import KoordError
from shared.fold import State

_DIGEST_BYTES = 32


class SnapshotFailed(KoordError):
    """The child that encodes a State ended without one."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the snapshot's child ended with status {status} and no data; its traceback is on stderr")


def pack(state: State) -> bytes:
    """Returns the SHA-256 of the encoded State, and the encoded State in zstd."""
    encoded = state.encode()
    return sha256(encoded).digest() + zstandard.ZstdCompressor(level=3).compress(encoded)


async def pack_in_child(state: State) -> tuple[bytes, bytes]:
    """Returns the digest and the packed bytes of the State as it is at the call.

    Raises:
        SnapshotFailed: the child could not encode it.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _encode_and_exit(state, write_end)
    os.close(write_end)
    reader = asyncio.StreamReader(limit=2**20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", buffering=0)
    )
    try:
        packed = await reader.read(-1)
    except asyncio.CancelledError:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        transport.close()
        status = await _ended(child)
    if status != 0 or len(packed) < _DIGEST_BYTES:
        raise SnapshotFailed(status)
    return packed[:_DIGEST_BYTES], packed[_DIGEST_BYTES:]


def _encode_and_exit(state: State, write_end: int) -> None:
    """Runs the child until its exit."""
    status = 1
    try:
        gc.disable()
        os.closerange(3, write_end)
        os.closerange(write_end + 1, os.sysconf("SC_OPEN_MAX"))
        with contextlib.suppress(OSError):
            os.nice(10)
        packed = memoryview(pack(state))
        while packed:
            packed = packed[os.write(write_end, packed) :]
        status = 0
    except BaseException:  # noqa: BLE001  there is nobody above: the parent sees the status, a person the traceback
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


async def _ended(child: int) -> int:
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222  WNOHANG does not block
        if pid:
            return os.waitstatus_to_exitcode(status)
        await asyncio.sleep(0.005)
