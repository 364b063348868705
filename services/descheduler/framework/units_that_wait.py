"""Units that wait for capacity, over the cycles: which of them get moves, the case that is under way for one, and
what became of it.

One case at a time: its unit is the only one for which capacity is freed, so that no two of them count on the same. The
capacity is not held for the unit: its priority and its place in the queue give it to the unit (ADR 0031).

These are rules of this system; upstream has none of them.
"""

from collections.abc import Container, Mapping
from typing import NamedTuple

from services.descheduler.framework.cycle_context import UnitsOfPlugin
from services.descheduler.framework.measured_effect import last_end_ns
from services.descheduler.framework.no_loops import NoLoops
from services.descheduler.state.descheduler_state import DeschedulerState
from services.descheduler.state.eviction_cases import ADMITTED, GONE, STILL_WAITS, EvictionCases, OpenedCase
from shared.domain.moves_for_waiting_unit import MOST_LEFT, MovesForUnitRequest, MovesForUnitResponse
from shared.kube.instants import SECOND


class UnitAnswers(NamedTuple):
    """The scheduler's answers of a cycle.

    Attributes:
        of: `profile/plugin` -> its newest question, and the answer.
        resting: names of units for which the scheduler found no moves a moment ago.
    """

    of: Mapping[str, tuple[MovesForUnitRequest, MovesForUnitResponse]] = {}
    resting: Container[str] = ()


NO_ANSWERS = UnitAnswers()


def units_of_plugin(cases: EvictionCases, answers: UnitAnswers, loops: NoLoops, of: str) -> UnitsOfPlugin:
    """Returns what a plugin of a profile knows about units."""
    case = next((each.event.case for each in cases.open_for_units), "")
    return UnitsOfPlugin(
        answers.of.get(of), answers.resting, cases.tried_units(), case, lambda: loops.left_lately(MOST_LEFT)
    )


def nodes_of_units(cases: EvictionCases) -> list[str]:
    """Returns the nodes on which capacity is freed for units: those that pods leave, and those that were planned."""
    found = []
    for each in cases.open_for_units:
        found += [victim.node for victim in each.event.victims]
        found += each.event.unit.nodes.values() if each.event.unit is not None else ()
    return list(dict.fromkeys(found))


def end_of_unit(state: DeschedulerState, opened: OpenedCase, now_ns: int) -> str | None:
    """Returns what became of the unit of a case whose moves have ended; empty without one, None while that is open.

    A unit is admitted once each of its pods that are still there has a node.
    """
    unit = opened.event.unit
    if unit is None or opened.event.dry_run:
        return ""
    pods = [pod for uid in unit.nodes if (pod := state.cluster.pods.by_uid.get(uid)) is not None]
    if not pods:
        return GONE
    if all(pod.spec.node_name for pod in pods):
        return ADMITTED
    waits_ns = now_ns - last_end_ns(state, opened)
    return None if opened.event.victims and waits_ns < unit.admit_within_s * SECOND else STILL_WAITS
