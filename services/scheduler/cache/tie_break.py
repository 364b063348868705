"""Tie break among nodes of equal score: a hash of node and pod decides, which is even, reproducible and needs no random
draw.

    winner = argmax over tied nodes of splitmix64( h(node) xor h(pod uid) ),   h = BLAKE2b with 64 bits

`kernels/merge_and_select_nodes.py` finds the winner. Source: architecture.md, "A decision is reproducible".
"""

from hashlib import blake2b

import numpy as np


def name_hash(name: str) -> np.uint64:
    """Returns BLAKE2b-64 of a node's name or a pod's uid."""
    return np.uint64(int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big"))
