"""Draws what the clients of a world create and delete."""

import random
from collections.abc import Iterator

import msgspec

from cli.dev.fault_simulation.cluster_objects import GPU_KIND, KINDS, QUOTAS
from cli.dev.fault_simulation.gangs_and_reservations import (
    MEMBERS,
    NON_STRICT,
    ONCE,
    OWNER,
    OWNERS,
    PRE_ALLOCATES,
    REQUIRES,
    SEVERAL,
    WITH_CPUS,
)
from cli.dev.fault_simulation.plan_step import FAULTS_END_S, Step, instant
from cli.dev.fault_simulation.volumes import LOCAL, MADE, USES_VOLUME


def workload(seed: int, draw: random.Random) -> Iterator[Step]:
    """Draws the workload of a seed, the pods by `draw` and each feature apart, so that the others do not change with it."""

    def apart(of: str) -> random.Random:
        return random.Random(f"{of} of {seed}")  # noqa: S311

    yield from _pods(draw)
    grouped = apart("gangs and reservations")
    gangs = _gangs(grouped)
    yield from _changed_gangs(apart("modes of gangs"), gangs)
    yield from _reservations(grouped)
    yield from _gpus(apart("devices"))
    yield from _storage(apart("volumes"))
    yield from _cpus(apart("CPUs"))
    yield from _pre_allocations(apart("pre-allocations"))
    yield from _lower_maxima(apart("lower maxima"))


def _pods(draw: random.Random) -> list[Step]:
    steps = []
    burst_s = instant(draw, 1.0) if draw.random() < 0.3 else None  # most pods at once: they compete for room
    for number in range(draw.randint(6, 12)):
        kind, at_s = draw.choice(KINDS), instant(draw)
        if burst_s is not None and draw.random() < 0.8:
            at_s = round(burst_s + draw.random() * 0.2, 3)
        name = f"pod-{number}"
        steps.append(Step(at_s, "create-pod", name, kind, draw.randint(1, 3)))
        if draw.random() < 0.35:
            gone_s = instant(draw, at_s)
            steps.append(Step(gone_s, draw.choice(("delete-pod", "request-eviction")), name))
            if draw.random() < 0.15:  # only a list shows that the pod is gone
                steps.append(Step(gone_s, "lag-watches", for_s=1.0, rate=1.0))
                steps.append(Step(round(gone_s + 0.8, 3), "expire-watches"))
            if draw.random() < 0.4:
                steps.append(Step(instant(draw, gone_s), "create-pod", name, kind, draw.randint(1, 3)))
    if draw.random() < 0.4:
        steps.append(Step(instant(draw), "raise-quota", draw.choice(tuple(QUOTAS)), number=draw.randint(7, 9)))
    if draw.random() < 0.3:
        steps.append(Step(instant(draw), "add-node", "node-3"))
    return steps


def _lower_maxima(draw: random.Random) -> Iterator[Step]:
    """Draws quotas whose max becomes less than their pods may use: these are revoked."""
    for quota in QUOTAS:
        if draw.random() < 0.2:
            yield Step(instant(draw, 2.0), "lower-quota", quota, number=draw.randint(1, 2))


def _gpus(draw: random.Random) -> list[Step]:
    """Draws pods with parts of GPUs, and wholes, which come at once or one by one, and of which some are deleted."""
    if draw.random() >= 0.4:
        return []
    steps = [Step(round(draw.random() * 2, 3), "add-devices")]
    burst_s = instant(draw, 2.0) if draw.random() < 0.5 else None
    for number in range(draw.randint(4, 10)):
        name = f"gpu-{number}"
        at_s = instant(draw) if burst_s is None else round(burst_s + draw.random() * 0.2, 3)
        steps.append(Step(at_s, "create-pod", name, GPU_KIND, draw.choice((1, 2, 2, 4))))
        if draw.random() < 0.4:
            steps.append(Step(instant(draw, at_s), draw.choice(("delete-pod", "request-eviction")), name))
    return steps


def _gangs(draw: random.Random) -> list[Step]:
    """Draws gangs whose members come at once or one by one, and of which some are deleted and come again."""
    steps = []
    for gang in ("gang-0", "gang-1")[: draw.choice((0, 0, 1, 1, 2))]:
        minimum, kind, cores, at_s = draw.randint(2, 4), draw.choice(MEMBERS), draw.randint(1, 2), instant(draw, 0.5)
        spread_s = draw.choice((0.1, 0.1, FAULTS_END_S - at_s))
        steps.append(Step(round(at_s + draw.random() * 0.2, 3), "create-gang", gang, number=minimum))
        for number in range(minimum + draw.choice((0, 0, 1))):
            name, comes_s = f"{gang}-{number}", round(at_s + draw.random() * spread_s, 3)
            steps.append(Step(comes_s, "create-pod", name, kind, cores))
            if draw.random() < 0.3:
                gone_s = instant(draw, comes_s) if draw.random() < 0.3 else round(comes_s + draw.random() * 0.5, 3)
                steps.append(Step(gone_s, draw.choice(("delete-pod", "request-eviction")), name))
                steps.append(Step(round(gone_s + draw.random() * 2, 3), "create-pod", name, kind, cores))
    return steps


def _changed_gangs(draw: random.Random, steps: list[Step]) -> Iterator[Step]:
    """Makes some gangs NonStrict, and deletes some PodGroups; most of these come again."""
    for step in steps:
        if step.do != "create-gang":
            yield step
            continue
        create, gang = step, step.target
        if draw.random() < 0.35:
            create = msgspec.structs.replace(step, what=NON_STRICT, for_s=float(draw.randint(1, 4)))
        yield create
        if draw.random() < 0.25:
            gone_s = instant(draw, step.at_s) if draw.random() < 0.5 else round(step.at_s + draw.random() * 1.5, 3)
            yield Step(gone_s, "delete-gang", gang)
            if draw.random() < 0.7:
                yield msgspec.structs.replace(create, at_s=round(gone_s + draw.random() * 2, 3))


def _reservations(draw: random.Random) -> list[Step]:
    """Draws Reservations with pods that own them; some expire, are deleted, or come again under their name."""
    steps = []
    for name in ("reserved-0", "reserved-1", "reserved-2")[: draw.choice((0, 0, 1, 2, 3))]:
        at_s, cores, kind = instant(draw), draw.randint(2, 6), draw.choice(("once", "shared"))
        ttl_s = draw.choice((0.0, float(draw.randint(2, 10))))
        steps.append(Step(at_s, "create-reservation", name, kind, cores, for_s=ttl_s))
        for number in range(draw.randint(0, 3)):
            owner, comes_s = f"{name}-{number}", instant(draw, at_s)
            steps.append(Step(comes_s, "create-pod", owner, OWNER, draw.randint(1, 3)))
            if draw.random() < 0.3:
                steps.append(Step(instant(draw, comes_s), "delete-pod", owner))
        if draw.random() < 0.3:
            gone_s = instant(draw, at_s)
            steps.append(Step(gone_s, "delete-reservation", name))
            if draw.random() < 0.5:
                steps.append(Step(instant(draw, gone_s), "create-reservation", name, kind, cores, for_s=ttl_s))
    return steps


def _storage(draw: random.Random) -> list[Step]:
    """Draws pods with claims: each of its own or two of one, which come again; some claims are deleted and come again."""
    if draw.random() >= 0.4:
        return []
    steps = [Step(round(draw.random(), 3), "add-storage")]
    burst_s = instant(draw, 1.0) if draw.random() < 0.5 else None
    for number in range(draw.randint(2, 5)):
        create = Step(instant(draw), "create-claim", f"data-{number}", draw.choice((LOCAL, MADE)), draw.randint(1, 3))
        steps.append(create)
        for name in (f"volume-{number}", f"volume-{number}-b")[: draw.choice((1, 1, 2))]:
            at_s = instant(draw) if burst_s is None else round(burst_s + draw.random() * 0.2, 3)
            steps.append(Step(at_s, "create-pod", name, USES_VOLUME, draw.randint(1, 3)))
            if draw.random() < 0.3:
                gone_s = instant(draw, at_s) if draw.random() < 0.5 else round(at_s + draw.random(), 3)
                steps.append(Step(gone_s, draw.choice(("delete-pod", "request-eviction")), name))
                if draw.random() < 0.6:
                    steps.append(Step(instant(draw, gone_s), "create-pod", name, USES_VOLUME, draw.randint(1, 3)))
        if draw.random() < 0.3:
            gone_s = instant(draw, create.at_s)
            steps.append(Step(gone_s, "delete-claim", create.target))
            if draw.random() < 0.7:
                steps.append(msgspec.structs.replace(create, at_s=round(gone_s + draw.random() * 2, 3)))
    return steps


def _cpus(draw: random.Random) -> list[Step]:
    """Draws pods with CPUs of their own, Reservations that hold CPUs, their owners, and in some worlds NUMA nodes."""
    if draw.random() >= 0.4:
        return []
    steps = [Step(0.0, "split-zones")] if draw.random() < 0.5 else []
    burst_s = instant(draw, 1.0) if draw.random() < 0.5 else None

    def at(begins_s: float = 0.0) -> float:
        if burst_s is None or burst_s < begins_s:
            return instant(draw, begins_s)
        return round(burst_s + draw.random() * 0.2, 3)

    for number in range(draw.randint(2, 5)):
        name, comes_s = f"own-{number}", at()
        steps.append(Step(comes_s, "create-pod", name, "bound-cpus", draw.randint(1, 4)))
        if draw.random() < 0.4:
            steps.append(Step(instant(draw, comes_s), draw.choice(("delete-pod", "request-eviction")), name))
    for name in ("held-cpus-0", "held-cpus-1")[: draw.choice((1, 2))]:
        at_s, cores, ttl_s = at(), draw.choice((2, 4)), draw.choice((0.0, float(draw.randint(2, 8))))
        what = draw.choice((WITH_CPUS, f"{WITH_CPUS} {ONCE}"))
        steps.append(Step(at_s, "create-reservation", name, what, cores, for_s=ttl_s))
        for number in range(draw.randint(0, 3)):
            owner, comes_s = f"{name}-{number}", at(at_s)
            steps.append(Step(comes_s, "create-pod", owner, draw.choice(OWNERS), draw.choice((1, 2, 2, 4))))
            if draw.random() < 0.3:
                steps.append(Step(instant(draw, comes_s), "delete-pod", owner))
        if draw.random() < 0.3:
            steps.append(Step(instant(draw, at_s), "delete-reservation", name))
    return steps


def _pre_allocations(draw: random.Random) -> list[Step]:
    """Draws running pods and Reservations that take them over; two of these may want the same pods."""
    if draw.random() >= 0.3:
        return []
    steps, name = list[Step](), "taking"
    first_s = instant(draw) * 0.6
    for number in range(draw.randint(1, 4)):
        owner, comes_s = f"{name}-{number}", round(first_s + draw.random(), 3)
        steps.append(Step(comes_s, "create-pod", owner, OWNER, draw.randint(1, 3)))
        if draw.random() < 0.3:
            steps.append(Step(instant(draw, comes_s), draw.choice(("delete-pod", "request-eviction")), owner))
    for number in range(draw.choice((1, 2))):
        what = " ".join((PRE_ALLOCATES, *(each for each in (ONCE, REQUIRES, SEVERAL) if draw.random() < 0.4)))
        at_s, cores = round(first_s + 0.5 + draw.random() * 2, 3), draw.randint(2, 8)
        ttl_s = draw.choice((0.0, float(draw.randint(2, 8))))
        steps.append(Step(at_s, "create-reservation", f"{name}-{number}", what, cores, for_s=ttl_s))
        if draw.random() < 0.3:
            steps.append(Step(instant(draw, at_s), "delete-reservation", f"{name}-{number}"))
    return steps
