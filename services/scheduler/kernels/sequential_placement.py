"""Pods of several classes placed one after the other, each on its best node, without Python code in between."""

import numpy as np

from services.scheduler.kernels.argument_and_result_types import (
    ALLOCATION,
    BALANCE,
    BATCH_OUTCOME,
    FIT,
    HASHES,
    INT,
    LOAD,
    NODE_AMOUNTS,
    POD_BATCH,
    VECTOR,
    Allocation,
    Balance,
    BatchOutcome,
    Fit,
    Load,
    NodeAmounts,
    Outcome,
    PodBatch,
    UInt64,
)
from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.fused_fit_and_scores import evaluate
from services.scheduler.kernels.merge_and_select_nodes import FEASIBLE, best_rows
from services.scheduler.kernels.numba_compile import Number, compiled, part


@part
def _tally_kinds(by: Int64, result: Int64, index: Number, kinds: Int64, counts: Int64) -> bool:
    """Counts the results of a filter by kind; returns False when there are more kinds than places for them."""
    found = 0
    for row in range(len(by)):
        if by[row] != index:
            continue
        kind = 0
        while kind < found and kinds[kind] != result[row]:
            kind += 1
        if kind == len(kinds):
            return False
        if kind == found:
            kinds[kind] = result[row]
            found += 1
        counts[kind] += 1
    return True


@part
def _count(row: Number, sign: Number, nodes: NodeAmounts, load: Int64, batch: PodBatch, pod: Number) -> None:
    """Adds a pod to the counts of a row (+1), or removes it (-1)."""
    for number in range(len(batch.columns)):
        nodes.requested[batch.columns[number], row] += sign * batch.amounts[pod, number]
    nodes.nonzero_requested[0, row] += sign * batch.nonzero_assigned[pod, 0]
    nodes.nonzero_requested[1, row] += sign * batch.nonzero_assigned[pod, 1]
    nodes.pods[row] += sign
    for resource in range(len(load)):
        load[resource, row] += sign * batch.load_incoming[pod, resource]


@part
def _with_incoming(load: Load, incoming: Int64) -> Load:
    """Returns the load term for a pod with another estimate."""
    return Load(
        load.place, load.weight, load.allocatable, load.load, incoming, load.weights, load.dominant, load.total_weight,
        load.until_ns, load.now_ns,
    )  # fmt: skip


@part
def _write_best(outcome: BatchOutcome, pod: Number, which: Int64, best: Outcome) -> None:
    """Writes the best nodes of a pod, with totals and shares."""
    for rank in range(len(which)):
        outcome.rows[pod, rank], outcome.totals[pod, rank] = which[rank], best.total[rank]
        for term in range(len(best.shares)):
            outcome.shares[pod, term, rank] = best.shares[term, rank]


@compiled(INT(VECTOR, HASHES, INT, NODE_AMOUNTS, FIT, ALLOCATION, BALANCE, LOAD, POD_BATCH, BATCH_OUTCOME))
def place(
    before: Int64,
    hashes: UInt64,
    base: int,
    nodes: NodeAmounts,
    fit: Fit,
    allocation: Allocation,
    balance: Balance,
    load: Load,
    batch: PodBatch,
    outcome: BatchOutcome,
) -> Number:
    """Places pods as long as some node admits each of them.

    Args:
        before: [nodes]: index of the filter that rejects every class, FEASIBLE for none, NO_NODE where the row is free.
        hashes: [nodes], of their names.
        nodes, load: placed pods are added to the counts, and removed at the end: the cycle counts them in their turn.
        outcome: written to.

    Returns:
        The number of placed pods. The next pod must be evaluated: no node admits it, its results are of too many kinds,
        or two of its best nodes differ only by name.
    """
    size, most, terms = len(before), outcome.rows.shape[1], outcome.shares.shape[1]
    everything, none = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    every = Outcome(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64), none)
    columns = allocation.columns.copy()
    done = 0
    for pod in range(len(batch.hashes)):
        columns[2] = batch.allocation_requests[pod]
        of_fit = Fit(fit.filter_index, fit.resources, batch.fit_sizes[pod], fit.too_small)
        of_allocation = Allocation(allocation.terms, columns)
        of_balance = Balance(balance.place, balance.weight, balance.resources, batch.balance_requests[pod])
        of_load = _with_incoming(load, batch.load_incoming[pod])
        every.by[:] = before
        evaluate(everything, size, every, base, nodes, of_fit, of_allocation, of_balance, of_load)
        which = best_rows(every.total, hashes, batch.hashes[pod], most)
        found = len(which)
        if not found or not _tally_kinds(
            every.by, every.result, fit.filter_index, outcome.kinds[pod], outcome.counts[pod]
        ):
            break
        if found > 1 and every.total[which[0]] == every.total[which[1]] and hashes[which[0]] == hashes[which[1]]:
            break  # two names with one hash: the names decide
        # Again for the best nodes alone, with the shares of each term.
        best = Outcome(
            np.full(found, FEASIBLE),
            np.empty(found, np.int64),
            np.empty(found, np.int64),
            np.empty((terms, found), np.int64),
        )
        evaluate(which, found, best, base, nodes, of_fit, of_allocation, of_balance, of_load)
        _write_best(outcome, pod, which, best)
        _count(which[0], 1, nodes, load.load, batch, pod)
        done = pod + 1
    for pod in range(done):
        _count(outcome.rows[pod, 0], -1, nodes, load.load, batch, pod)
    return done
