"""The plan of a world: what its clients do and which faults happen, as data that a seed draws and a shrink shortens."""

import random
from collections.abc import Sequence

import msgspec

from cli.dev.fault_simulation.plan_cards import card_faults
from cli.dev.fault_simulation.plan_migrations import (
    IN_ALL,
    USUAL,
    gang_moves,
    migrations,
    only_a_waiting_gang,
    waiting_gang,
)
from cli.dev.fault_simulation.plan_step import FAULTS_LAST_S, Step, fault_time, instant
from cli.dev.fault_simulation.plan_workload import workload
from cli.dev.fault_simulation.replica import SERVICES
from shared.errors import KoordError

ENDS_S = 25.0
"""By then every world has come to rest, or has just left it again."""

SETTLES_S = 1.5
"""What a service decides at the end is carried out within this time."""

LONGEST_FAULT_S = 5.0

DRAINS = "drains"
"""The end of a second system that releases the Lease; any other is a crash."""

FORGERIES = ("batch-of-another-context", "batch", "beacon")
FORGED_CONTEXTS = ("scheduling", "cluster", "nodes-0")

Plan = tuple[Step, ...]


class BadPlan(KoordError):
    """A plan that cannot be read."""


def encode(plan: Plan) -> str:
    """Returns a plan as JSON."""
    return msgspec.json.encode(plan).decode()


def decode(text: str | bytes) -> Plan:
    """Reads a plan.

    Raises:
        BadPlan: the text is none.
    """
    try:
        return msgspec.json.decode(text, type=Plan)
    except msgspec.DecodeError as error:
        raise BadPlan(
            f"the plan cannot be read: {error}; give the JSON that `koord dev simulate-faults` prints"
        ) from error


def drawn(seed: int, *, moves_pods: bool = False) -> Plan:
    """Draws the plan of a seed.

    Args:
        moves_pods: there is a descheduler, and what it has to do, in every world; otherwise in a quarter of them.
    """
    shares = IN_ALL if moves_pods else USUAL
    draw = random.Random(f"plan of {seed}")  # noqa: S311
    # Drawn apart, so that the other seeds have the histories that they had before.
    apart = random.Random(f"mistakes of {seed}")  # noqa: S311
    second = random.Random(f"second systems of {seed}")  # noqa: S311
    steps = [*workload(seed, draw), *_faults(draw), *_mistakes(apart), *_second_system(second)]
    if any(step.do == "add-devices" for step in steps):
        steps += card_faults(random.Random(f"cards of {seed}"))  # noqa: S311
    steps += migrations(random.Random(f"migrations of {seed}"), shares)  # noqa: S311
    steps += gang_moves(random.Random(f"gang moves of {seed}"), steps)  # noqa: S311
    steps = waiting_gang(random.Random(f"waiting gangs of {seed}"), steps)  # noqa: S311
    steps = only_a_waiting_gang(random.Random(f"large gangs of {seed}"), steps, shares)  # noqa: S311
    return tuple(sorted(steps, key=lambda step: step.at_s))


def _faults(draw: random.Random) -> list[Step]:
    steps = [Step(0.0, "start-standby", draw.choice(SERVICES))] if draw.random() < 0.25 else []
    if draw.random() < 0.3:
        steps += _retention(draw)
    steps += [_fault(draw) for _ in range(draw.choice((1, 2, 3, 4, 6, 8)))]
    if draw.random() < 0.1:
        steps += _old_intent(draw)
    if draw.random() < 0.05:  # of two wrong clocks at a time the log promises nothing
        steps = [step for step in steps if step.do != "jump-clock"]
        steps.append(Step(instant(draw), "jump-log-clock", number=draw.randint(-600, 600), for_s=LONGEST_FAULT_S))
    return steps


def _retention(draw: random.Random) -> list[Step]:
    """Draws services that keep their events for a short time, early in the world; the clock of one may be ahead."""
    kept_s, services = round(1.5 + draw.random() * 4, 1), draw.sample(SERVICES, 3)
    if draw.random() < 0.5 and "gateway" not in services:  # its log has most of what must be carried forward
        services.append("gateway")
    steps = [Step(round(draw.random() * 3, 3), "retain", service, rate=kept_s) for service in services]
    if draw.random() < 0.3:
        steps.append(Step(instant(draw), "jump-clock", services[0], number=draw.randint(1, 600), for_s=LONGEST_FAULT_S))
    return steps


def _old_intent(draw: random.Random) -> list[Step]:
    """Draws an eviction that is requested while the gateway is stopped for longer than an intent may have an effect."""
    stops_s, pod = round(2.5 + draw.random() * 2, 3), "evicted-late"
    return [
        Step(round(draw.random(), 3), "create-pod", pod, "plain", 1),
        Step(stops_s, "stop", "gateway", for_s=round(9 + draw.random() * (FAULTS_LAST_S - stops_s - 9), 3)),
        Step(round(stops_s + 0.05, 3), "request-eviction", pod),
    ]


def _mistakes(draw: random.Random) -> list[Step]:
    """Draws what people and services do wrong: too many evictions, forged allocations, the kubeconfig of a copy."""
    steps = []
    if draw.random() < 0.12:
        steps += [Step(round(draw.random() * 2, 3), "create-pod", f"many-{number}", "plain", 1) for number in range(9)]
        for _ in range(draw.randint(1, 3)):
            at_s = instant(draw, 3.0)
            steps.append(Step(at_s, "evict-all"))
            if draw.random() < 0.5:
                steps.append(Step(at_s, "crash-in-evictions", number=draw.randint(0, 30)))
        if draw.random() < 0.5:
            steps.append(Step(instant(draw, 3.0), "hold-evictions"))
    if draw.random() < 0.06:
        steps.append(Step(instant(draw, 3.0), "forge-allocations"))
        steps += [Step(instant(draw), "create-pod", f"cpus-{number}", "bound-cpus", 2) for number in range(8)]
    if draw.random() < 0.05:
        steps.append(Step(instant(draw, 1.0), "wrong-cluster", for_s=round(1 + draw.random() * 3, 3)))
    return steps


def _second_system(draw: random.Random) -> list[Step]:
    """Draws a second system on the same cluster, mostly while the first one does not reach the API server or is stopped:
    then it takes the Lease over.
    """
    if draw.random() >= 0.08:
        return []
    at_s = instant(draw, 1.0)
    lasts_s = round(2 + draw.random() * (FAULTS_LAST_S - 4 - at_s), 3)
    steps = [Step(at_s, "second-system", what=draw.choice((DRAINS, "")), for_s=lasts_s)]
    if draw.random() < 0.7:
        fault = draw.choice(("cut-api", "stop"))
        since_s = round(max(at_s - draw.random(), 0.2), 3)
        steps.append(Step(since_s, fault, "gateway" * (fault == "stop"), for_s=round(3 + draw.random() * 3, 3)))
    return steps


def _fault(draw: random.Random) -> Step:
    at_s, for_s = fault_time(draw)
    service, rate = draw.choice(SERVICES), round(0.1 + draw.random() * 0.7, 2)
    kinds: Sequence[Step] = (
        Step(at_s, "crash", service, number=draw.randint(0, 60)),
        Step(at_s, "crash", service, number=draw.randint(0, 60)),
        Step(at_s, "stop", service, for_s=for_s),
        Step(at_s, "jump-clock", service, number=draw.randint(-600, 600), for_s=for_s),
        Step(at_s, "cut-log", service, for_s=for_s),
        Step(at_s, "slow-log", for_s=for_s, rate=round(draw.random() * 0.3, 3)),
        Step(at_s, "restart-log", for_s=round(draw.random() * 2, 3)),
        Step(at_s, "cut-bus", service, draw.choice(("both", "deaf", "mute")), for_s=for_s),
        Step(at_s, "restart-bus", for_s=for_s),
        Step(at_s, "messages", what=draw.choice(("lost", "doubled", "delayed")), for_s=for_s, rate=rate),
        Step(at_s, "messages", what=draw.choice(("lost", "doubled", "delayed")), for_s=for_s, rate=rate),
        Step(at_s, "api", what=draw.choice(("409", "429", "500", "503", "504-on-reads")), for_s=for_s, rate=rate),
        Step(at_s, "api", what=draw.choice(("504", "cut", "hang")), for_s=for_s, rate=rate),
        Step(at_s, "api", what="short", for_s=for_s, rate=rate),
        Step(at_s, "cut-api", for_s=for_s),
        Step(at_s, "lag-watches", for_s=for_s, rate=round(draw.random() * 2, 3)),
        Step(at_s, "expire-watches"),
        Step(at_s, "usurp", draw.choice(("metrics-ingest", "slo-controller"))),
        Step(at_s, "forge", draw.choice(FORGED_CONTEXTS), draw.choice(FORGERIES)),
        Step(at_s, "silence", draw.choice(("", "node-0", "node-1", "node-2")), for_s=draw.choice((for_s, ENDS_S))),
    )
    return draw.choice(kinds)
