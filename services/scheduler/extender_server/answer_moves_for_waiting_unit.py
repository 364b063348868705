"""Which few moves would admit a waiting unit: the answer to the descheduler's question.

A pure function of the settled cache: nothing is decided or recorded. The search is that of `koord defrag`.
"""

from services.scheduler.cycle.cycle_inputs import CycleInputs
from services.scheduler.explain.movable_pods import why_fixed
from services.scheduler.explain.moves_that_admit_unit import Slices, moves_in_slices, no_node
from services.scheduler.explain.waiting_unit import NoGangToPlan, NothingWaits, waiting_unit
from services.scheduler.state.packed_controllers import unpacked
from services.scheduler.state.pod_scheduling_record import PodRecord
from services.scheduler.state.quota_reason_codes import waits_for_quota
from shared.domain.moves_for_waiting_unit import MovesForUnitRequest, MovesForUnitResponse, PlannedMove

MOST_PODS = 8
"""Pods of a unit that is planned: no pod is placed during the search. `koord bench defrag` measures it."""


def moves_for_unit(cache: CycleInputs, request: MovesForUnitRequest, now_ns: int) -> Slices[MovesForUnitResponse]:
    """Plans the moves after which a waiting unit fits; `seen` is left to the caller."""
    cache.settle()
    try:
        pods = waiting_unit(cache, request.unit)
    except (NothingWaits, NoGangToPlan) as error:
        return MovesForUnitResponse(problem=str(error))
    if len(pods) > MOST_PODS:
        return MovesForUnitResponse(
            problem=f"{request.unit} has {len(pods)} waiting pods; at most {MOST_PODS} are planned"
        )
    if problem := next(filter(None, map(_no_capacity_helps, pods)), ""):
        return MovesForUnitResponse(problem=problem)
    stays = frozenset(request.fixed)

    def fixed(pod: PodRecord) -> str:
        return "kept by the descheduler" if pod.uid in stays else why_fixed(cache.view, pod)

    def left(pod: PodRecord) -> tuple[str, ...]:
        owners = (each.uid for each in unpacked(pod.controllers) if each.controller)
        return tuple(node for key in (pod.uid, pod.name, *owners) for node in request.left.get(key, ()))

    found = yield from moves_in_slices(cache, pods, fixed, now_ns, left if request.left else no_node)
    if found.problem:
        return MovesForUnitResponse(problem=found.problem)
    if len(found.moves) > request.most_moves:
        return MovesForUnitResponse(
            problem=f"it takes {len(found.moves)} moves; at most {request.most_moves} are allowed"
        )
    return MovesForUnitResponse(
        nodes=dict(found.nodes),
        moves=tuple(PlannedMove(move.pod_uid, move.pod, move.source, move.destination) for move in found.moves),
    )


def _no_capacity_helps(pod: PodRecord) -> str:
    """Returns why free capacity would not place a pod; empty for a pod that waits for capacity alone."""
    if waits_for_quota(pod.reasons):
        return f"{pod.name} waits for its quota: koord why pod"
    return f"pods leave {pod.nominated} for {pod.name} already" if pod.nominated else ""
