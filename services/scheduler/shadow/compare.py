"""What we would have done with a pod that another scheduler has bound, by the path that our own pods take.

Source: architecture.md, "Shadow mode".
"""

from typing import NamedTuple

from services.scheduler.cache.scheduling_cache import Index
from services.scheduler.cycle.active_plugins import Panel
from services.scheduler.cycle.cycle_state import WorkingCopies
from services.scheduler.cycle.evaluation import Judge
from services.scheduler.cycle.tie_break import name_hash
from services.scheduler.framework.plugin import Profile
from services.scheduler.framework.reasons import NODE_UNKNOWN, UNREADABLE_POD
from services.scheduler.kernels.select import NO_NODE
from services.scheduler.state.pod_class import PodAsk
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
    ask: PodAsk
    node: str
    seq: int
    at_ns: int


def profile_for(index: Index, scheduler: str) -> Profile:
    """Whose rules judge another scheduler's pods: the profile of its name, else the first of the configuration."""
    return index.profiles.get(scheduler) or next(iter(index.profiles.values()))


def compare(index: Index, binding: Binding) -> PlacementCompared:
    """Judge the pod on the state as it is, before its binding is folded, and hold the other's choice against ours.

    A pure function of the state and the binding: judged again at the recorded positions it comes out the same.
    """
    index.settle()
    ask, table, profile = binding.ask, index.table, profile_for(index, binding.ask.scheduler)
    judged, ours, theirs = ClassEvaluated(nodes=int(table.alive.sum()), feasible=0), _NONE, _NONE
    refused: tuple[Rejections, ...] = (Rejections(plugin="", code=UNREADABLE_POD, nodes=1, detail=ask.fault),)
    if not ask.fault:
        copies = WorkingCopies(index, binding.at_ns)
        judge = Judge(Panel(profile, copies.plugin_states, copies.room), table, ask)
        pod_hash = name_hash(binding.uid)
        judged, row = judge.judged(pod_hash), judge.choose(pod_hash)
        ours = judge.candidates([row])[0] if row >= 0 else _NONE
        refused = _refusals(judge, table.rows.get(binding.node, -1))
        theirs = _NONE if refused else judge.candidates([table.rows[binding.node]])[0]
    return PlacementCompared(
        pod_uid=binding.uid,
        pod=binding.pod,
        scheduler=ask.scheduler,
        profile=profile.name,
        request=ask.request,
        as_of={**index.view.positions, "cluster": binding.seq - 1},
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


def _refusals(judge: Judge, row: int) -> tuple[Rejections, ...]:
    if row < 0 or judge.by[row] == NO_NODE:
        return (Rejections(plugin="", code=NODE_UNKNOWN, nodes=1),)
    return judge.refusals(row)


_NONE = Candidate(node="", score=0, plugin_scores={})
