"""Ctrl-C: the first drains, the second kills."""

import asyncio
import signal
from typing import Self

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, Ctrl-C, SIGTERM and a terminal that goes away set `first`, and any further one sets `second`."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in _NUMBERS:
            loop.add_signal_handler(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in _NUMBERS:
            loop.remove_signal_handler(number)

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()
