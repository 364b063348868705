"""The fused evaluation of one class of pods: the fit filter and the weighted sum of all score terms, in one pass.

Values that several plugins read of a node are loaded once, and no intermediate result is written to memory. Tile by
tile the arithmetic is that of `fit_allocation_balance` and `node_load`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.argument_and_result_types import (
    ALLOCATION,
    BALANCE,
    FIT,
    INT,
    LOAD,
    NODE_AMOUNTS,
    OUTCOME,
    VECTOR,
    Allocation,
    Balance,
    Fit,
    Load,
    NodeAmounts,
    Outcome,
    types,
)
from services.scheduler.kernels.array_types_and_row_selection import TILE, Bools, Int64, Tile
from services.scheduler.kernels.fit_allocation_balance import allocation_tile, balance_tile, fit_tile
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE
from services.scheduler.kernels.node_load import load_tile
from services.scheduler.kernels.numba_compile import Number, compiled, inlined

Float64 = NDArray[np.float64]


class _Scratch(NamedTuple):
    """Working memory of a tile: one array of each per pass, since allocation in the loop would cost more than the
    arithmetic.
    """

    short: Int64
    score: Float64
    share: Float64
    third: Float64
    total: Float64
    fractions: Float64
    there: Bools


@inlined
def _add(total: Float64, score: Float64, weight: Number, shares: Int64, term: Number, start: Number) -> None:
    """Adds a weighted score to the total, and writes it to the shares when there are any."""
    factor = np.float64(weight)
    for place in range(len(score)):
        total[place] += score[place] * factor
    if len(shares):
        for place in range(len(score)):
            shares[term, start + place] = np.int64(score[place] * factor)


@inlined
def _reject(short: Int64, by: Int64, result: Int64, tile: Tile, nodes: NodeAmounts, fit: Fit) -> None:
    """Rejects the nodes of a tile that lack resources. by, result: [tile], written to."""
    fit_tile(short, tile, nodes, fit.resources, fit.sizes, fit.too_small)
    any_short = np.int64(0)
    for place in range(len(short)):
        any_short |= short[place]
    if any_short:
        for place in range(len(short)):
            if short[place] != 0 and by[place] == FEASIBLE:
                by[place] = fit.filter_index
                result[place] = short[place]


@inlined
def _evaluate_tile(
    tile: Tile,
    scratch: _Scratch,
    outcome: Outcome,
    base: Number,
    nodes: NodeAmounts,
    fit: Fit,
    allocation: Allocation,
    balance: Balance,
    load: Load,
) -> None:
    """Does the same as `evaluate` for one tile."""
    start, size = tile.start, min(tile.length - tile.start, TILE)
    by, total = outcome.by[start : start + size], scratch.total[:size]
    score, share, third = scratch.score[:size], scratch.share[:size], scratch.third[:size]
    if fit.filter_index >= 0:
        _reject(scratch.short[:size], by, outcome.result[start : start + size], tile, nodes, fit)
    for place in range(size):
        total[place] = base
    resources, sources, requests, weights = (
        allocation.columns[0],
        allocation.columns[1],
        allocation.columns[2],
        allocation.columns[3],
    )
    for number in range(len(allocation.terms)):
        first, last, most = allocation.terms[number, 2], allocation.terms[number, 3], allocation.terms[number, 4] != 0
        columns = resources[first:last], sources[first:last], requests[first:last], weights[first:last]
        allocation_tile(score, share, third, tile, nodes, columns, most)
        _add(total, score, allocation.terms[number, 1], outcome.shares, allocation.terms[number, 0], start)
    if balance.weight:
        working = share, third, scratch.fractions, scratch.there
        balance_tile(score, working, tile, nodes.allocatable, nodes.requested, balance.resources, balance.requests)
        _add(total, score, balance.weight, outcome.shares, balance.place, start)
    if load.weight:
        load_tile(score, share, third, tile, load)
        _add(total, score, load.weight, outcome.shares, load.place, start)
    for place in range(size):
        outcome.total[start + place] = np.int64(total[place]) if by[place] == FEASIBLE else -1


@compiled(types.void(VECTOR, INT, OUTCOME, INT, NODE_AMOUNTS, FIT, ALLOCATION, BALANCE, LOAD))
def evaluate(
    rows: Int64,
    count: int,
    outcome: Outcome,
    base: int,
    nodes: NodeAmounts,
    fit: Fit,
    allocation: Allocation,
    balance: Balance,
    load: Load,
) -> None:
    """Rejects nodes with insufficient resources, and sums up the scores of the others.

    Args:
        rows, count: the nodes to evaluate, as `array_types_and_row_selection.selected` returns them.
        outcome: written to.
        base: score of every node besides the terms.
    """
    size = min(count, TILE)
    pairs = len(balance.resources), size
    scratch = _Scratch(
        np.empty(size, np.int64),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(size),
        np.empty(pairs),
        np.empty(pairs, np.bool_),
    )
    for start in range(0, count, TILE):
        tile = Tile(rows, count, start)
        _evaluate_tile(tile, scratch, outcome, base, nodes, fit, allocation, balance, load)
