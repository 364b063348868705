"""Which of several equally good nodes a pod gets: a hash of both decides, so that it is even, reproducible and needs no draw.

    winner = argmax over tied nodes of splitmix64( h(node) xor h(pod uid) ),   h = BLAKE2b with 64 bits

`kernels/best.py` finds the winner. Source: architecture.md, "A decision is reproducible".
"""

from hashlib import blake2b

import numpy as np


def name_hash(name: str) -> np.uint64:
    """BLAKE2b-64 of a node's name or a pod's uid."""
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big"))
