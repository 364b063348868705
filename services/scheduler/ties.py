"""Which of several equally good nodes a pod gets: a hash of both decides, so that it is even, reproducible and needs no draw.

    winner = argmax over tied nodes of splitmix64( h(node) xor h(pod uid) ),   h = BLAKE2b with 64 bits

Source: architecture.md, "A decision is reproducible"; splitmix64 is Steele, Lea and Flood's finaliser.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

UInt64 = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def name_hash(name: str) -> np.uint64:
    """BLAKE2b-64 of a node's name or a pod's uid."""
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big"))


def ranks(nodes: UInt64, pod: np.uint64) -> UInt64:
    """How each tied node stands for this pod; the highest wins.

    Args:
        nodes: [tied], `name_hash` of each node.
        pod: `name_hash` of the pod's uid.
    """
    z = (nodes ^ pod) + _GOLDEN
    z ^= z >> _30
    z *= _FIRST
    z ^= z >> _27
    z *= _SECOND
    z ^= z >> _31
    return z
