"""Replacements for the system around the services, for as long as a world runs: clocks, the garbage collector's
switches, child processes, and logging.

Everything else of the services is the code that production runs.
"""

import asyncio
import gc
import logging
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import msgspec

from cli.dev.fault_simulation import retention_adapter
from cli.dev.fault_simulation.memory_log import BEGINS_US
from cli.dev.fault_simulation.virtual_loop import PROCESS, VirtualLoop
from services.gateway.effects import drift_tracker
from services.scheduler.framework.config import profiles
from services.slo_controller.overcommit import report_expiry
from shared.fold import State
from shared.kube.instants import SECOND
from shared.log import announcements, follower, retention_carry_forward
from shared.log.codec import Codec
from shared.runtime import retention, runner, service

RETRY_PAUSE_MAX_S = 3.0
"""Of desired states that were given up: a world ends some ten seconds after its last fault."""

_FIELDS = cache(msgspec.structs.fields)
"""Settings are read at each start of a service."""

CODEC = cache(Codec)
"""The codec of event types: made at each start of a service, and at rest for each State."""

_FAULTS_OF = cache(profiles.faults_of)
"""The scheduler reads its configuration at each start."""


async def _pack(state: State) -> tuple[bytes, bytes]:
    """Encodes a State without a child process."""
    encoded = state.encode()
    return sha256(encoded).digest(), encoded


async def _no_rebuilds(_runtime: Any) -> None:
    """Stands for the rebuild in a child process: the invariants compare every State with the fold of its log."""
    await asyncio.get_running_loop().create_future()


def _clocks(loop: VirtualLoop) -> dict[str, Callable[[], Any]]:
    begins_ns = BEGINS_US * 1000

    def time_ns() -> int:
        process = PROCESS.get(loop.outside)
        return begins_ns + int(loop.time() * 1e9) + process.skew_ns

    return {
        "time_ns": time_ns,
        "time": lambda: time_ns() / 1e9,
        "monotonic": loop.time,
        "monotonic_ns": lambda: int(loop.time() * 1e9),
        "perf_counter": loop.time,
    }


def _nothing(*_: Any) -> int:
    return 0


def _read_once() -> dict[str, Callable[..., Any]]:
    """Returns the decoder of announced batches, and the check of their digests, computed once for all followers."""
    check, found = announcements.is_chained, dict[int, tuple[announcements.Batch, bool]]()

    def is_chained(batch: announcements.Batch) -> bool:
        if (known := found.get(id(batch))) is None:
            known = found[id(batch)] = (batch, check(batch))
        return known[1]

    return {"read_batch": cache(announcements.read_batch), "is_chained": is_chained}


@contextmanager
def substituted(loop: VirtualLoop, seed: int) -> Iterator[None]:
    """Replaces them while a world runs. The real clock is back while its results are evaluated."""
    state = random.getstate()
    logged = logging.root.manager.disable
    hook = sys.unraisablehook
    with (
        patch.multiple(time, **_clocks(loop)),  # type: ignore[call-overload]
        patch.multiple(gc, freeze=_nothing, collect=_nothing, enable=_nothing, disable=_nothing),
        patch.object(msgspec.structs, "fields", _FIELDS),
        patch.object(follower, "Codec", CODEC),
        patch.object(profiles, "faults_of", _FAULTS_OF),
        patch.multiple(announcements, **_read_once()),  # type: ignore[call-overload]
        patch.object(service, "pack_in_child", _pack),
        patch.object(runner, "watch_rebuilds", _no_rebuilds),
        patch.object(drift_tracker, "RETRY_PAUSE_MAX_S", RETRY_PAUSE_MAX_S),
        patch.multiple(
            retention,
            expired=retention_adapter.expired,
            drop=retention_adapter.drop,
            kept_events=retention_adapter.kept_events,
            POLL_INTERVAL_S=retention_adapter.POLL_INTERVAL_S,
        ),
        patch.object(report_expiry, "SECOND", SECOND // 60),  # `degradeTimeMinutes` are seconds: a world is short
        patch.object(retention_carry_forward, "_page", retention_adapter.page),
    ):
        random.seed(seed)  # jitter of shells
        logging.disable(logging.CRITICAL)
        sys.unraisablehook = lambda _: None  # coroutines of processes that were killed
        try:
            yield
        finally:
            random.setstate(state)
            logging.disable(logged)
            sys.unraisablehook = hook
