"""Where running pods would go if they had to move: the answer to the descheduler's question.

A pure function of the settled cache: nothing is decided or recorded. A pod keeps counting on its own node, since its
place elsewhere is held before it leaves; a pod that has a destination counts there for those behind it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.nominations_and_victims_of_cycle import CyclePreemptions, least_first
from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import PodRecord
from shared.domain.move_destinations import Move

GONE, NOT_RUNNING, ENDING = "the pod is gone", "the pod runs on no node", "the pod is ending"
NOWHERE = "no other node admits the pod"


class Destinations(NamedTuple):
    """The answer: uid -> node, and uid -> reason of a pod without one."""

    nodes: Mapping[str, str]
    refused: Mapping[str, str]


def destinations(cache: CycleInputs, moves: Iterable[Move], now_ns: int) -> Destinations:
    """Finds a node for each pod, in order; pods that are nominated for a node count on it."""
    cache.settle()
    transaction = with_nominated_pods(cache, now_ns)
    evaluations: dict[PodClass, ClassEvaluation] = {}
    nodes: dict[str, str] = {}
    refused: dict[str, str] = {}
    for move in moves:
        pod = cache.view.pods.get(move.pod_uid)
        if fault := _fault(cache, pod):
            refused[move.pod_uid] = fault
            continue
        assert pod is not None, "a pod without fault is known"
        node = place_copy(cache, transaction, evaluations, pod, {pod.node, *move.excluded}, move.only)
        if node:
            nodes[move.pod_uid] = node
        else:
            refused[move.pod_uid] = f"node {move.only} does not admit the pod" if move.only else NOWHERE
    return Destinations(nodes, refused)


def with_nominated_pods(cache: CycleInputs, now_ns: int) -> CycleTransaction:
    """Returns a transaction over a settled cache in which nominated pods count on their nodes."""
    transaction = CycleTransaction(cache, now_ns)
    cycle = CyclePreemptions(cache, cache.nominated)
    for nominated in reversed(least_first(cache.nominated.values())):
        pod_class, row = nominated.pod_class, cache.table.rows.get(nominated.nominated)
        if pod_class is not None and row is not None:
            profile = cache.profiles[pod_class.scheduler]
            transaction.nominate(nominated, pod_class, profile, row, cycle.leaving_from(row, pod_class.priority))
    return transaction


def _fault(cache: CycleInputs, pod: PodRecord | None) -> str:
    """Returns why a pod is not moved; empty for one that can be."""
    if pod is None or not pod.name:
        return GONE
    if pod.ended or pod.deleting:
        return ENDING
    if not pod.node:
        return NOT_RUNNING
    if pod.pod_class is None or pod.pod_class.fault:
        return f"its requests cannot be read: {pod.pod_class.fault if pod.pod_class else 'not read yet'}"
    if pod.pod_class.scheduler not in cache.profiles:
        return f"its scheduler {pod.pod_class.scheduler} is not this one"
    return ""


def place_copy(
    cache: CycleInputs,
    transaction: CycleTransaction,
    evaluations: dict[PodClass, ClassEvaluation],
    pod: PodRecord,
    excluded: set[str],
    only: str = "",
) -> str:
    """Places a copy of a pod on the best node that is not excluded, by total and then by name.

    Args:
        evaluations: of the classes that were evaluated on the transaction so far; written to.
        excluded: names of nodes.
        only: the only node that is none of these; empty for all of them.

    Returns:
        The name of its node; empty without any.
    """
    pod_class = pod.pod_class
    assert pod_class is not None, "its class was checked"
    profile = cache.profiles[pod_class.scheduler]
    evaluation = evaluations.get(pod_class)
    if evaluation is None:
        evaluation = evaluations[pod_class] = transaction.evaluation(profile, pod_class)
    else:
        transaction.focus(profile, pod_class)
        evaluation.catch_up()
    left_out = [row for name in sorted(excluded) if (row := cache.table.rows.get(name)) is not None]
    while True:
        totals = evaluation.total.copy()
        totals[left_out] = -1
        if only:
            row = cache.table.rows.get(only)
            totals = np.where(np.arange(len(totals)) == (-1 if row is None else row), totals, -1)
        best = int(totals.max(initial=-1))
        if best < 0:
            return ""
        names = cache.table.names
        row = min(np.flatnonzero(totals == best).tolist(), key=lambda each: names[each])
        allocation = transaction.reserve(evaluation, row)
        if allocation is not None:
            copy = PodRecord(f"move of {pod.uid}", pod.name)
            transaction.place(copy, pod_class, row, allocation, predictable=False)
            return names[row]
