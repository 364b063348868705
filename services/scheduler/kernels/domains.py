"""Verdicts that depend on the topology domain a node is in."""

from services.scheduler.kernels.compiled import compiled
from services.scheduler.kernels.tiles import Int64

WHERE_ANY, WHERE_NONE = 1, 0
"""Which nodes `mark` refuses: those with something in their domain, or with nothing."""


@compiled("void(int64[::1], int64[::1], int64[::1], int64, int64)")
def mark(results: Int64, domain: Int64, counted: Int64, result: int, refused: int) -> None:
    """Refuse nodes by whether there is something in their domain.

    Args:
        results: [nodes], written to: of two verdicts on a node the higher one stays.
        domain: [nodes], an index into `counted`.
        counted: [domains]: how much there is.
        result: what is said of a refused node.
        refused: WHERE_ANY or WHERE_NONE.
    """
    for row in range(len(results)):
        if (counted[domain[row]] > 0) == (refused == WHERE_ANY):
            results[row] = max(results[row], result)
