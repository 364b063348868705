"""The merged hints of all combinations of one hint a resource: only those that can be the best.

A combination is preferred when all its hints are and all have one set of NUMA nodes; those are few and are
enumerated. When there is none, the narrowest ones decide; eight NUMA nodes and three resources have 16 million
combinations, so these are computed as arrays.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Mask = int
"""A set of NUMA nodes, a bit each."""

MOST_COMBINATIONS = 1 << 21
"""Beyond so many combinations the widest hints of a resource are left out: the result is valid, but upstream's may differ."""


class Hint(NamedTuple):
    """An affinity: a set of NUMA nodes, None for any.

    Attributes:
        preferred: no narrower set is sufficient.
        unsatisfied: a resource has no sufficient set.
    """

    mask: Mask | None
    preferred: bool
    score: int = 0
    unsatisfied: bool = False


def preferred_combinations(lists: Sequence[Sequence[Hint]], every: Mask) -> Iterator[Hint]:
    """The merged hints of the preferred combinations, in the order of the hints, the last list changing fastest."""
    preferred = [[hint for hint in hints if hint.preferred and not hint.unsatisfied] for hints in lists]

    def walk(depth: int, mask: Mask | None, chosen: tuple[Hint, ...]) -> Iterator[Hint]:
        if depth == len(preferred):
            both = every if mask is None else mask & every
            score = sum(hint.score for hint in chosen if (every if hint.mask is None else hint.mask) == both)
            wider = mask is not None and both != mask
            yield Hint(both, preferred=True, score=score, unsatisfied=wider)
            return
        for hint in preferred[depth]:
            if hint.mask is None or mask is None or hint.mask == mask:
                yield from walk(depth + 1, mask if hint.mask is None else hint.mask, (*chosen, hint))

    return walk(0, None, ())


def narrowest_combinations(lists: Sequence[Sequence[Hint]], every: Mask) -> Iterator[Hint]:
    """The merged hints of the combinations with the fewest NUMA nodes, none of them preferred, in the order of the hints."""
    both: NDArray[np.int64] = np.array([every], np.int64)
    widest = np.zeros(1, np.int64)
    unsatisfied = np.zeros(1, np.bool_)
    places: list[NDArray[np.intp]] = []
    masks = [np.array([every if hint.mask is None else hint.mask for hint in hints], np.int64) for hints in lists]
    for hints, all_masks in zip(lists, masks, strict=True):
        size = max(1, MOST_COMBINATIONS // max(1, len(both)))
        mask = all_masks[:size]
        named = np.array([hint.mask is not None for hint in hints[:size]], np.bool_)
        bad = np.array([hint.unsatisfied for hint in hints[:size]], np.bool_)
        joined = (both[:, None] & mask).ravel()
        kept = np.flatnonzero(joined)  # a set that is empty stays empty
        before, place = np.divmod(kept, max(1, len(mask)))
        both = joined[kept]
        widest = np.maximum(widest[before], np.where(named, np.bitwise_count(mask), 0)[place])
        unsatisfied = unsatisfied[before] | bad[place]
        places = [*(earlier[before] for earlier in places), place]
    if not len(both):
        return
    bits = np.bitwise_count(both).astype(np.int64)
    narrow = np.flatnonzero(bits == bits.min())
    both = both[narrow]
    score = np.zeros(len(narrow), np.int64)
    for hints, mask, place in zip(lists, masks, places, strict=True):
        chosen = place[narrow]
        scores = np.array([hint.score for hint in hints], np.int64)
        score += np.where(mask[chosen] == both, scores[chosen], 0)
    lacking = unsatisfied[narrow] | (bits[narrow] < widest[narrow])
    for mask_, score_, lacking_ in zip(both.tolist(), score.tolist(), lacking.tolist(), strict=True):
        yield Hint(mask_, preferred=False, score=score_, unsatisfied=lacking_)
