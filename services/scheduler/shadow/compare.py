"""What we would have done with a pod that another scheduler has bound, by the path that our own pods take.

Source: architecture.md, "Shadow mode".
"""

from typing import NamedTuple

from services.scheduler.cache.tie_break import name_hash
from services.scheduler.cycle.active_plugins import ActivePlugins
from services.scheduler.cycle.cycle_state import CycleState
from services.scheduler.cycle.evaluation import ClassEvaluation
from services.scheduler.cycle.scheduling_cache import SchedulingCache
from services.scheduler.framework.profile import Profile
from services.scheduler.framework.reasons import NODE_UNKNOWN, UNREADABLE_POD
from services.scheduler.kernels.select import NO_NODE
from services.scheduler.state.pod_class import PodClass
from shared.events.scheduling import Candidate, ClassEvaluated, PlacementCompared, Rejections


class Binding(NamedTuple):
    """A binding by another scheduler that is about to be folded.

    Attributes:
        node: where the pod was bound.
        seq: `cluster` seq of its observation.
        at_ns: when that was recorded: the `now` of the comparison.
    """

    uid: str
    pod: str
    pod_class: PodClass
    node: str
    seq: int
    at_ns: int


def profile_for(cache: SchedulingCache, scheduler: str) -> Profile:
    """Whose rules judge another scheduler's pods: the profile of its name, else the first of the configuration."""
    return cache.profiles.get(scheduler) or next(iter(cache.profiles.values()))


def compare(cache: SchedulingCache, binding: Binding) -> PlacementCompared:
    """Judge the pod on the state as it is, before its binding is folded, and hold the other's choice against ours.

    A pure function of the state and the binding: judged again at the recorded positions it comes out the same.
    """
    cache.settle()
    pod_class, table, profile = binding.pod_class, cache.table, profile_for(cache, binding.pod_class.scheduler)
    judged, ours, theirs = ClassEvaluated(nodes=int(table.alive.sum()), feasible=0), _NONE, _NONE
    refused: tuple[Rejections, ...] = (Rejections(plugin="", code=UNREADABLE_POD, nodes=1, detail=pod_class.fault),)
    if not pod_class.fault:
        state = CycleState(cache, binding.at_ns)
        evaluation = ClassEvaluation(ActivePlugins(profile, state.plugin_states, state.snapshot), table, pod_class)
        pod_hash = name_hash(binding.uid)
        judged, row = evaluation.record(pod_hash), evaluation.choose(pod_hash)
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
        evaluation=judged,
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
