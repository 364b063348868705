"""Running a world: the plan's steps, the rest at the end, and what comes of it."""

import asyncio
import gc
import sys
import warnings
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from cli.dev.fault_simulation import at_rest, cluster_objects, faults, migrations
from cli.dev.fault_simulation.memory_api import OF_STORAGE
from cli.dev.fault_simulation.plan import ENDS_S, SETTLES_S, Plan
from cli.dev.fault_simulation.plan_migrations import ADD
from cli.dev.fault_simulation.replayed_at_rest import decided_differently
from cli.dev.fault_simulation.replica import DESCHEDULER, DISCOVERY, SERVICES
from cli.dev.fault_simulation.substitutions import substituted
from cli.dev.fault_simulation.volumes import USES_VOLUME
from cli.dev.fault_simulation.waiting_at_rest import waiting
from cli.dev.fault_simulation.world import World
from shared.kube.instants import SECOND

LATER_LOOKS = 2
"""Further looks at a world in which something is undone."""

STORAGE_STEPS = frozenset({"add-storage", "create-claim", "delete-claim"})


class Outcome(NamedTuple):
    """Outcome of a world.

    Attributes:
        violations: broken invariants, in the order in which they were found.
        steps: callbacks that ran.
        digest: of the whole history: equal for two runs of the same seed and plan.
    """

    violations: tuple[str, ...]
    steps: int
    digest: str


def simulate(seed: int, plan: Plan) -> Outcome:
    """Runs one world."""
    loop_of_caller = asyncio._get_running_loop()  # noqa: SLF001
    assert loop_of_caller is None, "a world has a loop of its own"
    world = World(seed)
    with substituted(world.loop, seed):
        try:
            run(world, plan)
        except Exception as error:  # noqa: BLE001  a callback that raises is a fault of the service
            world.report(f"a callback raised {error!r}")
        outcome = _outcome(world)
        world.loop.dispose()
    return outcome


def run(world: World, plan: Plan) -> None:
    """Runs the plan until the world has come to rest, and checks it then."""
    outside = world.loop.outside
    with world.loop.current():
        outside.context.run(_begin, world, plan)
    world.loop.run_until(ENDS_S)
    left = [*at_rest.states(world), *at_rest.undone(world)]
    if left or any(waiting(world)):
        # A service decides by its timers, and what it just decided is not carried out yet.
        world.loop.run_until(ENDS_S + SETTLES_S)
        left = [*at_rest.states(world), *_undone(world)]
    # The queue remembers what it moved while its clock was off, which no log has.
    is_off = any(step.do == "jump-clock" and step.target == "scheduler" for step in plan)
    for text in (*left, *_waits(world), *(() if is_off else decided_differently(world))):
        world.report(text)


def _begin(world: World, plan: Plan) -> None:
    if any(step.do in STORAGE_STEPS or step.what == USES_VOLUME for step in plan):
        for resource in OF_STORAGE:
            world.api.install(resource)
    moves = any(step.do == ADD for step in plan)
    for resource in migrations.OF_MIGRATIONS * moves:
        world.api.install(resource)
    for resource, body in cluster_objects.initial():
        world.api.create(resource, body)
    for service in SERVICES:
        world.start_replica(service, after_s=world.random.random() * 0.2)
    if any(step.do == "add-devices" for step in plan):
        world.start_replica(DISCOVERY)
    if moves:
        world.api.create("configmaps", migrations.config_map(next(step.what for step in plan if step.do == ADD)))
        world.start_replica(DESCHEDULER)
    for name in world.api.objects["nodes"]:
        world.start_agent(name)
    world.begin(world.operator.process, world.operator.run)
    for step in plan:
        if step.do == "create-pod":
            world.kinds[step.target] = step.what
        world.later(step.at_s, partial(faults.carry_out, world, step))


def _undone(world: World) -> list[str]:
    """Returns what is undone at each of several looks: a drain or a job that goes on may decide something before one."""
    found = list(at_rest.undone(world))
    for look in range(LATER_LOOKS):
        if not found:
            break
        world.loop.run_until(ENDS_S + SETTLES_S * (look + 2))
        found = list(at_rest.undone(world))
    return found


def _waits(world: World) -> list[str]:
    """Returns what waits without need, once all that waits was tried again.

    One that was refused because another has a nomination waits for as long as that one's backoff lasts, so there are
    more looks where another waits than before.
    """
    found, texts = list(waiting(world)), set[str]()
    due = list[str]()
    for _ in range(LATER_LOOKS):
        now_ns = world.now_ns()
        due += [each.text for each in found if each.retry_ns <= now_ns]
        later = [each.retry_ns for each in found if each.retry_ns > now_ns]
        if not later or texts.issuperset(each.text for each in found):
            break
        texts.update(each.text for each in found)
        world.loop.run_until(world.loop.time() + (max(later) - now_ns) / SECOND + SETTLES_S)
        found = list(waiting(world))
    return list(dict.fromkeys([*due, *(each.text for each in found)]))


def _outcome(world: World) -> Outcome:
    history = sha256()
    for name, context in sorted(world.postgres.contexts.items()):
        history.update(f"{name} {context.first} {context.head.seq}".encode() + context.head.digest)
    history.update(f"{world.loop.steps} {world.api.version}".encode())
    return Outcome(tuple(world.violations), world.loop.steps, history.hexdigest())


def settle_memory() -> None:
    """Frees what ended worlds have left. Their suspended coroutines are closed by this, and what they do then is of no
    interest.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that were never awaited
        try:
            gc.collect()
        finally:
            sys.unraisablehook = hook
