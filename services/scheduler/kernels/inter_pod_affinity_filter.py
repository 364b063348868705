"""Filter results that depend on the topology domain of a node."""

from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.numba_compile import compiled

WHERE_ANY, WHERE_NONE = 1, 0
"""The nodes that `mark` rejects: those with a count above 0 in their domain, or with 0."""


@compiled("void(int64[::1], int64[::1], int64[::1], int64, int64)")
def mark(results: Int64, domain: Int64, counted: Int64, result: int, refused: int) -> None:
    """Rejects nodes by the count of their domain.

    Args:
        results: [nodes], written to: of two results of a node the higher one is kept.
        domain: [nodes], an index into `counted`.
        counted: [domains]: the count.
        result: of a rejected node.
        refused: WHERE_ANY or WHERE_NONE.
    """
    for row in range(len(results)):
        if (counted[domain[row]] > 0) == (refused == WHERE_ANY):
            results[row] = max(results[row], result)
