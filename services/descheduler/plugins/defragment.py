"""Defragment: pods leave nodes for a unit that waits, where the scheduler finds few moves that admit it.

The plugin asks the scheduler for the moves, checks each victim by the filters and limits of the cycle, and asks again
without those that stay. All victims leave, each for the node that the scheduler found for it, or none does. Of a
workload one pod leaves for a unit.

A rule of this system; upstream has none.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from services.descheduler.framework.cycle_context import CycleContext, Findings
from services.descheduler.load_aware.measured_node import PodOnNode
from services.descheduler.plugins.waiting_units import DefragmentArgs, UnitThatWaits, named_unit, waiting_units
from shared.domain.moves_for_waiting_unit import MOST_FIXED, MovesForUnitRequest, MovesForUnitResponse, PlannedMove
from shared.events.descheduling import WaitingUnit
from shared.kube.instants import SECOND


def defragment(context: CycleContext) -> Findings:
    """Chooses the moves for the unit that waits the longest, of those that were not tried in vain a moment ago."""
    args: DefragmentArgs = context.args
    most = context.evictor.most(args.most_moves)
    if args.paused or context.units.case or not most:
        return Findings()
    unit = _first(context, args)
    if unit is None:
        return Findings()
    if context.units.answer is None:
        return Findings(question=MovesForUnitRequest(unit.name, most, left=dict(context.units.left())))
    request, response = context.units.answer
    if request.unit != unit.name or not response.moves:
        return Findings()
    pods = {each.pod.metadata.uid: each for node in context.nodes for each in node.pods}
    stay = _staying(context, response.moves, pods)
    if stay:
        fixed = tuple(dict.fromkeys((*request.fixed, *stay)))
        return Findings(question=replace(request, fixed=fixed)) if len(fixed) <= MOST_FIXED else Findings()
    return _chosen(context, unit, response, [pods[move.pod_uid] for move in response.moves])


def _first(context: CycleContext, args: DefragmentArgs) -> UnitThatWaits | None:
    tried, resting, now_ns = context.units.tried, context.units.resting, context.now_ns
    for unit in waiting_units(context.cluster.pods.by_uid.values(), args, now_ns):
        tried_ns = tried.get(unit.name)
        if unit.name not in resting and (tried_ns is None or now_ns - tried_ns >= args.retry_after_s * SECOND):
            return unit
    return None


def _staying(context: CycleContext, moves: Sequence[PlannedMove], pods: dict[str, PodOnNode]) -> list[str]:
    """Returns the pods that the scheduler must keep on their nodes; none where all the moves may be made.

    With a victim that stays, all pods of its node that stay are named: the next plan would choose one of them.
    """
    there = [pod for move in moves if (pod := pods.get(move.pod_uid)) is not None and _is_on(pod, move.source)]
    known = {pod.pod.metadata.uid for pod in there}
    found = [move.pod_uid for move in moves if move.pod_uid not in known]
    found += _second_of_workload(there)
    refused = context.evictor.refusals_of_all(there)
    nodes = {pods[uid].pod.spec.node_name for uid in refused}
    others = (pod for pod in pods.values() if pod.pod.spec.node_name in nodes and context.evictor.refusal(pod))
    return [*found, *refused, *(pod.pod.metadata.uid for pod in others)]


def _is_on(pod: PodOnNode, node: str) -> bool:
    return pod.pod.spec.node_name == node


def _second_of_workload(pods: Iterable[PodOnNode]) -> list[str]:
    """Returns the pods whose workload another one leaves already."""
    owners: dict[str, None] = {}
    found = []
    for pod in pods:
        owner = pod.owner.uid if pod.owner is not None else pod.key
        if owner in owners:
            found.append(pod.pod.metadata.uid)
        owners[owner] = None
    return found


def _chosen(
    context: CycleContext, unit: UnitThatWaits, response: MovesForUnitResponse, pods: Sequence[PodOnNode]
) -> Findings:
    args: DefragmentArgs = context.args
    waits = f"{named_unit(unit.kind, unit.name)} has waited for {unit.wait_s} s"
    for move, pod in zip(response.moves, pods, strict=True):
        reason = f"{waits} and fits once it has left {move.source}"
        context.evictor.evict(pod, move.source, reason, group=unit.name, only=move.destination)
    nodes = {uid: response.nodes.get(uid, "") for uid in unit.pods}
    sources = (*(move.source for move in response.moves), *response.nodes.values())
    return Findings(
        sources=tuple(dict.fromkeys(sources)),
        unit=WaitingUnit(unit.name, unit.kind, unit.wait_s, args.min_wait_s, nodes, args.admit_within_s),
    )
