"""Scores of nodes by the GPU capacity that a pod would leave there without a use.

A workload is a list of types of pods with their numbers. What is left of a node's GPUs is worth what these types can
use of it, with the node's CPU, memory and single GPUs; all in integers, so that every machine decides the same.
"""

import numpy as np

from services.scheduler.kernels.array_types_and_row_selection import Int64
from services.scheduler.kernels.numba_compile import Number, compiled, inlined, part

MIDDLE = 500_000
"""Score of a node whose fragments stay the same."""
STEPS = 100
"""Steps of a score for a percent of one GPU."""
UNFIT = 0
WHOLE = 100
UNKNOWN = -1 << 62
"""An amount of cpu that no node has."""


@inlined
def fitting(whole: Number, partly: Int64, parts: Number, number: Number, share: Number) -> Number:
    """Returns how many pods fit by GPUs, each of `number` GPUs with a share of each.

    Args:
        whole: number of GPUs that are free as a whole.
        partly: the first `parts` are what others have left.
    """
    if number == 1:
        found = whole * (WHOLE // share)
        for part_ in range(parts):
            if partly[part_] >= share:
                found += partly[part_] // share
        return found
    found = whole
    for part_ in range(parts):
        found += partly[part_] >= share
    return found // max(number, 1)


@part
def fragments(
    cpu: Number,
    memory: Number,
    free: Int64,
    gpus: Number,
    model: Number,
    workload: Int64,
    fed: Int64,
    packs: Number,
    partly: Int64,
) -> Number:
    """Returns the GPU capacity without a use, times the number of pods of the workload.

        FGD:     sum_t n[t] * (left if no pod of t fits, else the sum of what GPUs with less than its share have)
        packing: sum_t n[t] * (left - what pods of t can use) + 2 * sum_t n[t] * max(0, left - fed)
        fed    = cpu * GPUs of the workload / cpu of its GPU pods

    Args:
        workload: [types, (cpu, memory, GPUs, share, models, pods)].
        fed: GPU percent and cpu of the workload's GPU pods, and its pods.
        partly: [GPUs], scratch.
    """
    whole = parts = left = 0
    for gpu in range(gpus):
        if free[gpu] == WHOLE:
            whole += 1
            left += WHOLE
        elif free[gpu] > 0:
            partly[parts] = free[gpu]
            parts += 1
            left += free[gpu]
    if left == 0:
        return 0
    total = 0
    for each in range(len(workload)):
        number, share = workload[each, 2], workload[each, 3]
        pods = 0
        # Divisions are slow: one takes place only where the amount limits.
        if number > 0 and cpu >= workload[each, 0] and memory >= workload[each, 1] and (workload[each, 4] >> model) & 1:
            pods = fitting(whole, partly, parts, number, share)
            if pods * workload[each, 0] > cpu:
                pods = cpu // workload[each, 0]
            if pods * workload[each, 1] > memory:
                pods = memory // workload[each, 1]
        if packs:
            total += workload[each, 5] * (left - pods * number * share)
        elif pods > 0:
            for part_ in range(parts):
                if partly[part_] < share:
                    total += workload[each, 5] * partly[part_]
        else:
            total += workload[each, 5] * left
    if packs:
        total += 2 * fed[2] * max(0, left - cpu * fed[0] // max(fed[1], 1))
    return total


@compiled(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1],"
    " int64[::1], int64[:, ::1], boolean)"
)
def fragment_scores(
    scores: Int64,
    rows: Int64,
    cpu: Int64,
    memory: Int64,
    free: Int64,
    node: Int64,
    request: Int64,
    workload: Int64,
    fed: Int64,
    before: Int64,
    packs: Number,
) -> None:
    """Writes scores: the less a pod adds to the fragments of a node, the higher.

    Of a share the fullest GPU with enough is taken, of a pod with whole GPUs the first ones.

    Args:
        scores: [rows], written to; UNFIT where the pod has no place.
        rows: the nodes.
        cpu, memory: [nodes], free amounts.
        free: [nodes, GPUs], percent that is free of each.
        node: [nodes, (GPUs, model)].
        request: cpu, memory, GPUs, share.
        before: [nodes, (cpu, memory, fragments)]: the fragments of nodes with these free amounts, read and written to;
            UNKNOWN as cpu: they are computed.
    """  # fmt: skip
    after, partly = np.zeros(free.shape[1], np.int64), np.zeros(free.shape[1], np.int64)
    for place in range(len(rows)):
        row = rows[place]
        gpus, model = node[row, 0], node[row, 1]
        number, share = request[2], request[3]
        scores[place] = UNFIT
        if cpu[row] < request[0] or memory[row] < request[1]:
            continue
        for gpu in range(gpus):
            after[gpu] = free[row, gpu]
        taken = 0
        while taken < number:
            best = -1
            for gpu in range(gpus):
                if free[row, gpu] >= share and after[gpu] == free[row, gpu] and (best < 0 or after[gpu] < after[best]):
                    best = gpu
            if best < 0:
                break
            after[best] -= share
            taken += 1
        if taken < number:
            continue
        if before[row, 0] != cpu[row] or before[row, 1] != memory[row]:
            before[row, 0], before[row, 1] = cpu[row], memory[row]
            before[row, 2] = fragments(cpu[row], memory[row], free[row], gpus, model, workload, fed, packs, partly)
        then = fragments(
            cpu[row] - request[0], memory[row] - request[1], after, gpus, model, workload, fed, packs, partly
        )
        scores[place] = max(MIDDLE - (then - before[row, 2]) * STEPS // max(fed[2], 1), UNFIT + 1)
