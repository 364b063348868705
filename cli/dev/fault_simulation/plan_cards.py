"""Draws cards that fail, Devices that somebody edits or deletes, and faults of device discovery."""

import random

from cli.dev.fault_simulation.cluster_objects import GPUS
from cli.dev.fault_simulation.node_cards import FAILURES
from cli.dev.fault_simulation.plan_step import FAULTS_LAST_S, Step, fault_time, faults_of, instant
from cli.dev.fault_simulation.replica import DISCOVERY


def card_faults(draw: random.Random) -> list[Step]:
    """Draws the faults of a world whose nodes have devices."""
    steps = []
    for _ in range(draw.randint(0, 6)):
        at_s, node, minor = instant(draw, 1.0), f"node-{draw.randrange(3)}", draw.randrange(GPUS)
        for_s = round(0.4 + draw.random() ** 2 * (FAULTS_LAST_S - at_s), 3)
        steps.append(Step(at_s, "fail-card", node, draw.choice(FAILURES), minor, for_s=for_s))
    if draw.random() < 0.3:
        change, node = draw.choice(("edit-device", "delete-device")), f"node-{draw.randrange(3)}"
        steps.append(Step(instant(draw, 2.0), change, node))
    if draw.random() < 0.2:
        steps.append(Step(0.0, "start-standby", DISCOVERY))
    if draw.random() < 0.2:
        steps.append(Step(round(draw.random() * 3, 3), "retain", DISCOVERY, rate=round(1.5 + draw.random() * 4, 1)))
    steps += [_fault_of_discovery(draw) for _ in range(draw.choice((0, 0, 1, 1, 2)))]
    return steps


def _fault_of_discovery(draw: random.Random) -> Step:
    at_s, for_s = fault_time(draw)
    of_service = faults_of(draw, DISCOVERY, at_s, for_s)
    return draw.choice((*of_service, Step(at_s, "silence", f"node-{draw.randrange(3)}", for_s=for_s)))
