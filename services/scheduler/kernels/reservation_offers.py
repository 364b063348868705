"""The Reservation that a pod of a class would use on each node, and its score.

The arithmetic is that of `plugins.reservation.filter_and_nominate_reservations`, which words the reasons where no
Reservation passes. Source: spec/scheduler-workloads.md 1.8, 1.9.
"""

from typing import NamedTuple

import numpy as np

from services.scheduler.kernels.argument_and_result_types import (
    CUBE,
    INT,
    MATRIX,
    NODE_AMOUNTS,
    VECTOR,
    NodeAmounts,
    types,
)
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.numba_compile import Number, compiled, inlined

NONE_OPEN, NONE_PASSES = -1, -2
"""In place of a Reservation: no further pod may use one of the node; none of those that are open passes."""

CONSIDERED, CONFINES, MOST_PODS, ORDER = 0, 1, 2, 3
"""Numbers of `Matched.facts`: its amounts are among those requested, or a Reservation is required; what it restricts has
to fit inside; the most pods that may use it, -1 without a bound; its order, 0 without one.
"""
FACTS = 4

AMOUNTS, INNER, WHOLE, RESTRICTED = 0, 1, 2, 3
"""Numbers of `Matched.of_resources`: what it holds, what it keeps from its owners, the request of its reserve pod, and 1
for a resource that it restricts.
"""
PER_RESOURCE = 4


class Matched(NamedTuple):
    """The Reservations that match a class; those of one node are neighbours, in the order of their names.

    Attributes:
        rows: [places]: of their nodes.
        starts: [places + 1]: number of the first one of each node.
        facts: [Reservations, FACTS].
        of_resources: [PER_RESOURCE, Reservations, resources].
    """

    rows: Int64
    starts: Int64
    facts: Int64
    of_resources: Int64


MATCHED = types.NamedTuple((VECTOR, VECTOR, MATRIX, CUBE), Matched)


class Requested(NamedTuple):
    """The request of the class.

    Attributes:
        sizes: [resources].
        columns: [resources]: their rows in `NodeAmounts`; -1 where no node has it.
        checked: [resources]: 1 for those that the node must have, beside what its Reservations hold.
        is_checked: 0 where a node is not checked while it has one open Reservation.
        anything: 0 for a pod without requests.
    """

    sizes: Int64
    columns: Int64
    checked: Int64
    is_checked: int
    anything: int


REQUESTED = types.NamedTuple((VECTOR, VECTOR, VECTOR, INT, INT), Requested)


class Used(NamedTuple):
    """The present use of the Reservations.

    Attributes:
        amounts: [Reservations, resources].
        owners: [Reservations].
        is_open: [Reservations]: 1 where one more pod may use it.
    """

    amounts: Int64
    owners: Int64
    is_open: Int64


USED = types.NamedTuple((MATRIX, VECTOR, VECTOR), Used)


@inlined
def _node_has(number: Number, row: Number, count: Number, left: Int64, of: Matched, used: Used, request: Requested, nodes: NodeAmounts) -> bool:  # fmt: skip
    """Returns True where the node has the request beside what all its open Reservations but this one hold."""
    if nodes.pods[row] - count + 1 > nodes.allowed_pods[row]:
        return False
    if not request.anything:
        return True
    for each in range(len(request.sizes)):
        if not request.checked[each]:
            continue
        own = max(0, of.of_resources[WHOLE, number, each] - used.amounts[number, each])
        held = left[each] - own + min(of.of_resources[INNER, number, each], own)
        column = request.columns[each]
        free = nodes.allocatable[column, row] - nodes.requested[column, row] if column >= 0 else 0
        if request.sizes[each] > free - held:
            return False
    return True


@inlined
def _has_inside(number: Number, of: Matched, used: Used, request: Requested) -> bool:
    """Returns True where the request fits inside the Reservation, of the resources that it restricts."""
    most = of.facts[number, MOST_PODS]
    if most >= 0 and used.owners[number] + 1 > most:
        return False
    for each in range(len(request.sizes)):
        size = request.sizes[each]
        if size and of.of_resources[RESTRICTED, number, each]:
            kept = of.of_resources[INNER, number, each] + used.amounts[number, each]
            if size > of.of_resources[AMOUNTS, number, each] - kept:
                return False
    return True


@inlined
def _score(number: Number, of: Matched, used: Used, request: Requested) -> Number:
    """Returns the share of the Reservation that is used with the pod, in percent, the mean over its resources."""
    total, kinds = np.int64(0), np.int64(0)
    for each in range(len(request.sizes)):
        size = of.of_resources[AMOUNTS, number, each]
        if size:
            kinds += 1
            taken = request.sizes[each] + used.amounts[number, each]
            if taken <= size:
                total += 100 * taken // size
    return total // kinds if kinds else np.int64(0)


@compiled(types.void(VECTOR, MATCHED, USED, REQUESTED, NODE_AMOUNTS, VECTOR, VECTOR))
def choose_reservations(
    places: Int64, of: Matched, used: Used, request: Requested, nodes: NodeAmounts, chosen: Int64, scores: Int64
) -> None:
    """Chooses on each node the Reservation that a pod uses: the smallest order of those that pass, else the highest
    score, the first of equal ones.

    Args:
        places: of the nodes, among `of.rows`. All their open Reservations are lifted.
        chosen: [places], written to: the number of the Reservation, NONE_OPEN or NONE_PASSES.
        scores: [places], written to: of the chosen one, 0..100; 0 without one.
    """
    left = np.empty(len(request.sizes), np.int64)
    for place in range(len(places)):
        row, first, last = of.rows[places[place]], of.starts[places[place]], of.starts[places[place] + 1]
        left[:] = 0
        count = np.int64(0)
        for number in range(first, last):
            if used.is_open[number]:
                count += 1
                for each in range(len(left)):
                    left[each] += max(0, of.of_resources[WHOLE, number, each] - used.amounts[number, each])
        chosen[place], scores[place] = NONE_PASSES if count else NONE_OPEN, 0
        smallest, highest = np.int64(0), np.int64(-1)
        for number in range(first, last):
            if not used.is_open[number] or not of.facts[number, CONSIDERED]:
                continue
            if (request.is_checked or count > 1) and not _node_has(number, row, count, left, of, used, request, nodes):
                continue
            if of.facts[number, CONFINES] and not _has_inside(number, of, used, request):
                continue
            order, score = of.facts[number, ORDER], _score(number, of, used, request)
            is_better = (smallest == 0 or order < smallest) if order else (smallest == 0 and score > highest)
            if is_better:
                smallest, highest = order, score
                chosen[place], scores[place] = number, score
