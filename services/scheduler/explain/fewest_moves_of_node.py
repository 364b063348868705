"""A lower bound of the pods that must leave a node for a waiting pod, by the amounts of the node alone.

The search tries nodes in the order of this bound, and ends with a plan that reaches it. Filters about other things than
amounts may need more moves, so a bound of one move may stand for a node where none helps.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.scheduler.cache.node_amounts_within_cycle import CycleSnapshot
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.state.pod_equivalence_class import PodClass


def requests_of(snapshot: CycleSnapshot, pod_class: PodClass) -> tuple[tuple[int, int], ...]:
    """Returns (column, amount) of each resource that the class requests and that a node has."""
    columns = snapshot.requested.shape[1]
    return tuple((column, size) for column, size in snapshot.table.vector(pod_class) if column < columns and size > 0)


def shortages(snapshot: CycleSnapshot, requests: Sequence[tuple[int, int]], rows: Int64) -> Int64:
    """Returns what each node lacks for one more pod with these requests.

    Args:
        rows: of the nodes.

    Returns:
        int64[rows, requests + 1], >= 0: amounts of each requested resource, and at last the number of pods.
    """
    lacking = [
        snapshot.requested[rows, column] + size - snapshot.allocatable[rows, column] for column, size in requests
    ]
    lacking.append(snapshot.pods[rows] + 1 - snapshot.allowed_pods[rows])
    found: Int64 = np.maximum(np.stack(lacking, axis=1), 0)
    return found


def has_capacity(snapshot: CycleSnapshot, pod_class: PodClass) -> NDArray[np.bool_]:
    """Returns [rows]: which nodes have cpu, memory and a place for one more pod of the class. A profile may have the
    filter NodeResourcesFit ignore other resources, not these.
    """
    enough: NDArray[np.bool_] = snapshot.pods < snapshot.allowed_pods[: snapshot.size]
    checked = (snapshot.column("cpu"), snapshot.column("memory"))
    for column, size in requests_of(snapshot, pod_class):
        if column in checked:
            enough &= snapshot.requested[:, column] + size <= snapshot.allocatable[: snapshot.size, column]
    return enough


def largest_share(lacking: Int64, requests: Sequence[tuple[int, int]]) -> list[float]:
    """Returns for each node the largest share of a request that it lacks; of a full number of pods 1 for each pod."""
    sizes = np.array([*(size for _, size in requests), 1], np.int64)
    shares: list[float] = (lacking / sizes).max(axis=1).tolist()
    return shares


def sums_of_largest(snapshot: CycleSnapshot, requests: Sequence[tuple[int, int]], pods: Sequence[PodClass]) -> Int64:
    """Returns how much the pods of these classes free at most.

    Returns:
        int64[requests + 1, pods]: at [r, k] the sum of the k + 1 largest of resource r; the last row counts pods.
    """
    amounts = np.ones((len(requests) + 1, len(pods)), np.int64)
    for number, pod_class in enumerate(pods):
        sizes = dict(snapshot.table.vector(pod_class))
        amounts[:-1, number] = [sizes.get(column, 0) for column, _ in requests]
    amounts[:-1] = -np.sort(-amounts[:-1], axis=1)
    found: Int64 = np.cumsum(amounts, axis=1)
    return found


def fewest_moves(lacking: Int64, sums: Int64) -> int:
    """Returns the fewest pods that free what a node lacks: at least one, and one more than there are where all of them do
    not.

    Args:
        lacking: int64[requests + 1]. sums: of `sums_of_largest`.
    """
    counts = [
        int(np.searchsorted(of_resource, lack)) + 1 for of_resource, lack in zip(sums, lacking, strict=True) if lack
    ]
    return max(counts, default=1)
