"""Evaluates a pod that another scheduler has bound as a pod of this scheduler, and compares the two choices.

Source: architecture.md, "Shadow mode".
"""

from typing import NamedTuple

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.transaction import CycleTransaction
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.reasons import NODE_UNKNOWN, UNREADABLE_POD
from services.scheduler.kernels.merge_and_select_nodes import NO_NODE
from services.scheduler.state.pod_equivalence_class import PodClass
from shared.events.scheduling import Candidate, ClassEvaluated, PlacementCompared, Rejections


class Binding(NamedTuple):
    """A binding by another scheduler that is about to be folded.

    Attributes:
        node: the node to which the pod was bound.
        seq: `cluster` seq of its observation.
        at_ns: the instant of its append, which is the `now` of the comparison.
    """

    uid: str
    pod: str
    pod_class: PodClass
    node: str
    seq: int
    at_ns: int


def profile_for(cache: CycleInputs, scheduler: str) -> Profile:
    """Returns the profile that evaluates another scheduler's pods: the one of its name, else the first of the
    configuration.
    """
    return cache.profiles.get(scheduler) or next(iter(cache.profiles.values()))


def compare(cache: CycleInputs, binding: Binding) -> PlacementCompared:
    """Evaluates the pod on the State just before its binding is folded, and compares the other scheduler's choice with
    ours.

    A pure function of the State and the binding: evaluated again at the recorded positions, the result is the same.
    """
    cache.settle()
    pod_class, table, profile = binding.pod_class, cache.table, profile_for(cache, binding.pod_class.scheduler)
    evaluated, ours, theirs = ClassEvaluated(nodes=int(table.alive.sum()), feasible=0), _NONE, _NONE
    refused: tuple[Rejections, ...] = (Rejections(plugin="", code=UNREADABLE_POD, nodes=1, detail=pod_class.fault),)
    if not pod_class.fault:
        evaluation = CycleTransaction(cache, binding.at_ns).evaluation(profile, pod_class)
        pod_hash = name_hash(binding.uid)
        evaluated, row = evaluation.record(pod_hash), evaluation.choose(pod_hash)
        ours = evaluation.candidates([row])[0] if row >= 0 else _NONE
        refused = _refusals(evaluation, table.rows.get(binding.node, -1))
        theirs = _NONE if refused else evaluation.candidates([table.rows[binding.node]])[0]
    return PlacementCompared(
        pod_uid=binding.uid,
        pod=binding.pod,
        scheduler=pod_class.scheduler,
        profile=profile.name,
        request=pod_class.request,
        as_of={**cache.view.positions, "cluster": binding.seq - 1},
        as_of_ns=binding.at_ns,
        evaluation=evaluated,
        their_node=binding.node,
        our_node=ours.node,
        our_score=ours.score,
        their_score=theirs.score,
        gap=0 if refused else ours.score - theirs.score,
        their_rejections=refused,
        their_plugin_scores=None if refused else theirs.plugin_scores,
    )


def _refusals(evaluation: ClassEvaluation, row: int) -> tuple[Rejections, ...]:
    if row < 0 or evaluation.by[row] == NO_NODE:
        return (Rejections(plugin="", code=NODE_UNKNOWN, nodes=1),)
    return evaluation.refusals(row)


_NONE = Candidate(node="", score=0, plugin_scores={})
