"""Deterministic random numbers: splitmix64 of counters, so that each number is computed independently of the others."""

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def splitmix(counter: int) -> int:
    """Takes one step of splitmix64: 64 well mixed bits of a counter."""
    mixed = (counter + _STEP) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _MIX[0]) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _MIX[1]) & _MASK
    return mixed ^ (mixed >> 31)


def splitmix_array(counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`splitmix` of each element; [any shape], wrapping at 64 bits."""
    mixed = counters + np.uint64(_STEP)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[1])
    return mixed ^ (mixed >> np.uint64(31))


@lru_cache(maxsize=65_536)
def text_hash(text: str) -> int:
    """Returns 64 bits of a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def pick(seed: int, counter: int, what: str, options: int) -> int:
    """Returns a number from 0 to `options` - 1: the choice named `what` for the object with this counter."""
    return splitmix(text_hash(f"{what}/{seed}") ^ counter) % options
