"""Draws what moves pods: a workload on nodes that fill up, jobs of clients, drains, and faults of the descheduler."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from cli.dev.fault_simulation.cluster_objects import NODE_CORES
from cli.dev.fault_simulation.gangs_and_reservations import MEMBERS
from cli.dev.fault_simulation.migrations import DEFRAGMENT, DEFRAGMENT_ALONE, WORKLOAD
from cli.dev.fault_simulation.plan_step import Step, fault_time, faults_of, instant
from cli.dev.fault_simulation.replica import DESCHEDULER, SERVICES

ADD = "add-migrations"


class Shares(NamedTuple):
    """Shares of the worlds in which pods are moved.

    Attributes:
        moves: in which a workload, clients and operators move pods.
        only_a_gang: of the others, those in which there is only a gang for which pods must leave.
    """

    moves: float
    only_a_gang: float


USUAL = Shares(0.15, 0.12)
IN_ALL = Shares(0.88, 1.0)


def migrations(draw: random.Random, shares: Shares) -> Iterator[Step]:
    """Draws the moves of a world."""
    if draw.random() >= shares.moves:
        return
    yield Step(round(draw.random() * 2, 3), ADD, number=draw.randint(3, 5))
    for number in range(draw.choice((0, 1, 1, 2, 3))):
        of = draw.choice(("workload", "workload", "any"))
        yield Step(instant(draw, 2.5), "migrate-pod", f"job-{number}", of, draw.randrange(4))
    if draw.random() < 0.4:
        node, at_s = f"node-{draw.randrange(3)}", instant(draw, 2.5)
        yield Step(at_s, "drain-node", node)
        ends = draw.choice(("", "cancel-drain", "uncordon"))
        if ends:
            yield Step(instant(draw, at_s), ends, node)
    if draw.random() < 0.2:
        yield Step(instant(draw, 3.0), "delete-place")
    if draw.random() < 0.2:
        yield Step(instant(draw, 3.0), "delete-job")
    if draw.random() < 0.2:
        yield Step(0.0, "start-standby", DESCHEDULER)
    if draw.random() < 0.25:
        yield Step(round(draw.random() * 3, 3), "retain", DESCHEDULER, rate=round(1.5 + draw.random() * 4, 1))
    for _ in range(draw.choice((0, 0, 1, 1, 2))):
        yield draw.choice(faults_of(draw, DESCHEDULER, *fault_time(draw)))


def gang_moves(draw: random.Random, steps: Iterable[Step]) -> Iterator[Step]:
    """Draws for a part of the worlds with moves that the workload is a gang, and jobs for several members at once."""
    added = next((step for step in steps if step.do == ADD), None)
    if added is None or draw.random() >= 0.5:
        return
    yield Step(0.0, "create-gang", WORKLOAD, "Strict", added.number - draw.choice((0, 0, 1)))
    for number in range(draw.choice((1, 1, 2))):
        at_s = instant(draw, 2.5)
        yield Step(at_s, "migrate-gang", f"gang-{number}", number=draw.randint(1, 3))
        if draw.random() < 0.5:  # while places are looked for, or are held
            yield Step(round(at_s + 0.8 + draw.random() * 2, 3), "delete-place")


def waiting_gang(draw: random.Random, steps: Sequence[Step]) -> list[Step]:
    """Draws for a part of the worlds with moves that pods leave for gangs that wait, and a gang of which one member needs
    nearly a whole node; few other pods are in the way then.
    """
    added = next((step for step in steps if step.do == ADD), None)
    is_gang = any(step.do == "create-gang" and step.target == WORKLOAD for step in steps)
    if added is None or is_gang or draw.random() >= 0.6:
        return list(steps)
    others = ("create-pod", "create-gang")
    kept = [step for step in steps if step is not added and not (step.do in others and draw.random() < 0.95)]
    return [replace(added, what=DEFRAGMENT, number=3), *kept, *_gang_of_a_node(draw, (0, 0, 1))]


def only_a_waiting_gang(draw: random.Random, steps: Sequence[Step], shares: Shares) -> list[Step]:
    """Draws for a part of the worlds without moves that nothing but two workloads and a gang is there, for which pods must
    leave a node, and few faults: in most of them moves admit the gang.
    """
    if any(step.do == ADD for step in steps) or draw.random() >= shares.only_a_gang:
        return list(steps)
    found = [Step(round(draw.random() * 2, 3), ADD, what=DEFRAGMENT_ALONE, number=3), *_gang_of_a_node(draw, (0,))]
    found += (
        Step(instant(draw), "create-pod", f"pod-{number}", "plain", 1) for number in range(draw.choice((0, 0, 1, 2)))
    )
    for _ in range(draw.choice((0, 1, 1, 2))):
        found.append(draw.choice(faults_of(draw, draw.choice((DESCHEDULER, *SERVICES)), *fault_time(draw))))
    return found


def _gang_of_a_node(draw: random.Random, spares: Sequence[int]) -> Iterator[Step]:
    """Draws a gang of two, of which one member needs a whole node, but for one of these numbers of cores."""
    at_s = round(3 + draw.random() * 4, 3)
    yield Step(at_s, "create-gang", "waits", number=2)
    for number, cores in enumerate((NODE_CORES - draw.choice(spares), 1)):
        comes_s = round(at_s + (number + draw.random()) * 0.15, 3)  # the large one first: it is placed first
        yield Step(comes_s, "create-pod", f"waits-{number}", MEMBERS[0], cores)
    if draw.random() < 0.15:
        yield Step(round(at_s + 2 + draw.random() * 4, 3), "delete-pod", "waits-1")
    if draw.random() < 0.3:
        yield Step(round(at_s + 2 + draw.random() * 4, 3), "delete-place")
