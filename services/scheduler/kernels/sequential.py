"""Pods of several classes placed one after the other, each on its best node, without a word of Python between them."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.kernels.compiled import Number, compiled, part
from services.scheduler.kernels.fused import evaluate
from services.scheduler.kernels.select import FEASIBLE, leading
from services.scheduler.kernels.tiles import Int64

UInt64 = NDArray[np.uint64]

_NODES = "int64[::1], uint64[::1], int64"
_ROOM = "int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1]"
_SHORT = "int64, int64[::1], int64[:, ::1], int64"
_FULL = "int64[:, ::1], int64[:, ::1], int64[:, ::1]"
_EVEN = "int64, int64, int64[::1], int64[:, ::1]"
_LEFT = "int64, int64, int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], int64, int64, int64[::1], int64"
_TAKES = "uint64[::1], int64[::1], int64[:, ::1], int64[:, ::1]"
_SAID = "int64[:, ::1], int64[:, ::1], int64[:, :, ::1], int64[:, ::1], int64[:, ::1]"


@part
def _told_apart(by: Int64, result: Int64, index: Number, kinds: Int64, counts: Int64) -> bool:
    """Count the verdicts of a filter by kind; whether there were no more kinds than places."""
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
def _count(
    row: Number,
    sign: Number,
    pods: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    load: Int64,
    taken_resources: Int64,
    taken_sizes: Int64,
    nonzero_assigned: Int64,
    incoming: Int64,
) -> None:
    """One pod more on the row, or one less."""
    for number in range(len(taken_resources)):
        requested[taken_resources[number], row] += sign * taken_sizes[number]
    nonzero_requested[0, row] += sign * nonzero_assigned[0]
    nonzero_requested[1, row] += sign * nonzero_assigned[1]
    pods[row] += sign
    for resource in range(len(load)):
        load[resource, row] += sign * incoming[resource]


@compiled(f"int64({_NODES}, {_ROOM}, {_SHORT}, {_FULL}, {_EVEN}, {_LEFT}, {_TAKES}, {_SAID})")
def place(
    before: Int64,
    hashes: UInt64,
    base: int,
    pods: Int64,
    allowed_pods: Int64,
    allocatable: Int64,
    requested: Int64,
    nonzero_requested: Int64,
    index: int,
    short_resources: Int64,
    short_sizes: Int64,
    too_small: int,
    full: Int64,
    full_terms: Int64,
    full_asked: Int64,
    even_place: int,
    even_weight: int,
    even_resources: Int64,
    even_asked: Int64,
    left_place: int,
    left_weight: int,
    left_allocatable: Int64,
    left_load: Int64,
    left_incoming: Int64,
    left_weights: Int64,
    left_dominant: int,
    left_total_weight: int,
    left_until_ns: Int64,
    left_now_ns: int,
    pod_hashes: UInt64,
    taken_resources: Int64,
    taken_sizes: Int64,
    nonzero_assigned: Int64,
    rows: Int64,
    totals: Int64,
    each: Int64,
    kinds: Int64,
    counts: Int64,
) -> Number:
    """Place pods for as long as a node will take each of them.

    Args:
        before: [nodes]: who refuses all of them whatever they ask for, FEASIBLE where nobody does, NO_NODE where the row is free.
        pods, requested, nonzero_requested, left_load: what is taken, as in `whole.evaluate`: counted on, and put back at the end.
        short_sizes, full_asked, even_asked, left_incoming: [pods, ...] each: what differs between the classes, else as in `whole.evaluate`.
        pod_hashes: [pods], of their uids.
        taken_resources: rows of `requested` in which a pod counts; taken_sizes: [pods, of these], with how much of each.
        nonzero_assigned: [pods, 2]: likewise in `nonzero_requested`.
        rows, totals: [pods, best], each: [pods, parts, best]: written to: the best nodes for each, as `leading` has them, -1 where there are
            fewer; their totals; what these are the sums of.
        kinds, counts: [pods, kinds], written to: of what kind of shortage how many nodes are refused for it; 0 where there are fewer kinds.

    Returns:
        How many pods were placed; the next is to be looked at closely.
    """
    size, most = len(before), rows.shape[1]
    everything, none = np.empty(0, np.int64), np.empty((0, 0), np.int64)
    by, result, total = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    terms = full_terms.copy()
    done = len(pod_hashes)
    for pod in range(len(pod_hashes)):
        terms[2] = full_asked[pod]
        by[:] = before
        which, found, here, sums, parts = everything, size, by, total, none
        for closer in range(2):  # all nodes; then the best again, for what their totals are the sums of
            evaluate(
                which, found, here, result, sums, parts, base, pods, allowed_pods, allocatable, requested, nonzero_requested,
                index, short_resources, short_sizes[pod], too_small, full, terms,
                even_place, even_weight, even_resources, even_asked[pod],
                left_place, left_weight, left_allocatable, left_load, left_incoming[pod], left_weights, left_dominant,
                left_total_weight, left_until_ns, left_now_ns,
            )  # fmt: skip
            if closer:
                break
            which = leading(total, hashes, pod_hashes[pod], most)
            found = len(which)
            if not found or not _told_apart(by, result, index, kinds[pod], counts[pod]):
                done = pod
                break
            if found > 1 and total[which[0]] == total[which[1]] and hashes[which[0]] == hashes[which[1]]:
                done = pod  # two names with one hash: the names decide
                break
            here, sums = np.full(found, FEASIBLE), np.empty(found, np.int64)
            parts = np.empty((each.shape[1], found), np.int64)
        if done <= pod:
            break
        for rank in range(found):
            rows[pod, rank], totals[pod, rank] = which[rank], sums[rank]
            for number in range(len(parts)):
                each[pod, number, rank] = parts[number, rank]
        _count(
            which[0], 1, pods, requested, nonzero_requested, left_load, taken_resources, taken_sizes[pod], nonzero_assigned[pod], left_incoming[pod]
        )  # fmt: skip
    for pod in range(done):  # the cycle counts them as it takes them
        _count(
            rows[pod, 0], -1, pods, requested, nonzero_requested, left_load, taken_resources, taken_sizes[pod], nonzero_assigned[pod],
            left_incoming[pod],
        )  # fmt: skip
    return done
