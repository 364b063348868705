"""The steps of a plan, carried out on a world. A step whose target does not exist does nothing."""

from collections.abc import Callable, Mapping
from functools import partial

from cli.dev.fault_simulation.api_transport import ApiFault
from cli.dev.fault_simulation.card_steps import CARD_STEPS
from cli.dev.fault_simulation.client_steps import CLIENT_STEPS
from cli.dev.fault_simulation.forged_announcements import any_bound_pod, forge
from cli.dev.fault_simulation.memory_api import key_of
from cli.dev.fault_simulation.memory_bus import NO_FAULTS, Faults
from cli.dev.fault_simulation.memory_log import KEEPALIVE_S
from cli.dev.fault_simulation.migration_steps import MIGRATION_STEPS
from cli.dev.fault_simulation.plan import DRAINS, BadPlan
from cli.dev.fault_simulation.plan_step import Step
from cli.dev.fault_simulation.replica import Replica
from cli.dev.fault_simulation.virtual_loop import Process
from cli.dev.fault_simulation.world import World
from shared.events import Draft
from shared.events.intents import EvictionRequested

DELAY_S = 1.5


def carry_out(world: World, step: Step) -> None:
    """Carries out one step.

    Raises:
        BadPlan: there is no such step.
    """
    action = STEPS.get(step.do)
    if action is None:
        raise BadPlan(f"there is no step {step.do!r}; there are {', '.join(sorted(STEPS))}")
    action(world, step)


# -- processes


def _start_standby(world: World, step: Step) -> None:
    world.start_replica(step.target)


def _crash(world: World, step: Step) -> None:
    """Crashes the replica that leads, after so many more of its callbacks."""
    replica = world.leader(step.target)
    if replica is not None:
        world.crash_after(replica, step.number)


def _stop(world: World, step: Step) -> None:
    replica = world.leader(step.target)
    if replica is not None:
        process = replica.process
        world.loop.stop_process(process)
        if step.target == "gateway":
            world.invariants.gateway_stops.append((world.loop.time(), step.for_s))
        world.later(step.for_s, lambda: world.loop.continue_process(process))


def _jump_clock(world: World, step: Step) -> None:
    """Sets the clock of a service's processes; its next runs have it too."""
    if step.target == "gateway" and step.number < 0:
        world.invariants.gateway_behind.append((world.loop.time() + step.for_s, -step.number))
    for replica in world.replicas_of(step.target):
        _set_clock(world, replica, step)


def _set_clock(world: World, replica: Replica, step: Step) -> None:
    def set_to(skew_ns: int) -> None:
        replica.skew_ns = replica.process.skew_ns = skew_ns

    set_to(step.number * 10**9)
    world.later(step.for_s, lambda: set_to(0))


def _usurp(world: World, step: Step) -> None:
    """Lets a service request the eviction of a pod, which only others may."""
    replica, pod = world.leader(step.target), any_bound_pod(world)
    if replica is None or replica.runtime is None or replica.runtime.phase != "leading" or pod is None:
        return
    metadata = pod["metadata"]
    event = EvictionRequested(pod=key_of(metadata), pod_uid=metadata["uid"], reason="usurped")
    now_ns = replica.runtime.now_ns()
    world.loop.spawn(replica.process, replica.runtime.append([Draft(event)], now_ns=now_ns))


def _silence(world: World, step: Step) -> None:
    """Stops the agent of a node, or of all nodes: their reports stop."""
    for node in [step.target] if step.target else list(world.agents):
        process = world.agents[node].process
        world.loop.stop_process(process)
        world.later(step.for_s, partial(world.loop.continue_process, process))


# -- the log's server


def _retain(world: World, step: Step) -> None:
    """Lets a service keep its events for a short time only."""
    world.kept_s[step.target] = step.rate
    for replica in world.replicas_of(step.target):
        replica.set_retention()


def _jump_log_clock(world: World, step: Step) -> None:
    world.postgres.skew_us = step.number * 10**6

    def end() -> None:
        world.postgres.skew_us = 0

    world.later(step.for_s, end)


def _cut_log(world: World, step: Step) -> None:
    postgres = world.postgres
    for process in [replica.process for replica in world.replicas_of(step.target)]:
        postgres.cut[process] = None
        world.later(KEEPALIVE_S, partial(_end_unreachable, world, process))
        world.later(step.for_s, partial(postgres.cut.pop, process, None))


def _end_unreachable(world: World, process: Process) -> None:
    """Drops the sessions of a client that the server has not reached for the keepalive's time."""
    if process in world.postgres.cut:
        world.postgres.end_sessions_of(process)


def _slow_log(world: World, step: Step) -> None:
    world.postgres.slow_s = step.rate

    def end() -> None:
        world.postgres.slow_s = 0.0

    world.later(step.for_s, end)


def _restart_log(world: World, step: Step) -> None:
    world.postgres.up = False
    world.postgres.restart()

    def end() -> None:
        world.postgres.up = True

    world.later(step.for_s, end)


# -- the bus


def _cut_bus(world: World, step: Step) -> None:
    broker = world.broker
    for process in [replica.process for replica in world.replicas_of(step.target)]:
        for cut in [broker.deaf] * (step.what != "mute") + [broker.mute] * (step.what != "deaf"):
            cut[process] = None
            world.later(step.for_s, partial(cut.pop, process, None))


def _restart_bus(world: World, step: Step) -> None:
    world.broker.up = False

    def end() -> None:
        world.broker.up = True

    world.later(step.for_s, end)


def _messages(world: World, step: Step) -> None:
    world.broker.faults = Faults(
        lost=step.rate * (step.what == "lost"),
        doubled=step.rate * (step.what == "doubled"),
        delayed=step.rate * (step.what == "delayed"),
        delay_s=DELAY_S,
    )

    def end() -> None:
        world.broker.faults = NO_FAULTS

    world.later(step.for_s, end)


# -- the Kubernetes API


def _api(world: World, step: Step) -> None:
    fault = ApiFault(step.what, step.rate)
    world.transport.faults[fault] = None
    world.later(step.for_s, lambda: world.transport.faults.pop(fault, None))


def _wrong_cluster(world: World, step: Step) -> None:
    """Takes the kubeconfig of a copy, unless the log is not that of the right cluster yet: the first one counts."""
    if world.postgres.contexts["cluster"].head.seq > 1:
        world.connect_to_a_copy(step.for_s)


def _second_system(world: World, step: Step) -> None:
    world.start_second_system(step.for_s, drains=step.what == DRAINS)


def _cut_api(world: World, step: Step) -> None:
    for process in [replica.process for replica in world.replicas_of("gateway")]:
        world.transport.cut[process] = None
        world.later(step.for_s, partial(world.transport.cut.pop, process, None))


def _lag_watches(world: World, step: Step) -> None:
    world.api.watch_lag_s = step.rate

    def end() -> None:
        world.api.watch_lag_s = 0.0

    world.later(step.for_s, end)


def _expire_watches(world: World, _step: Step) -> None:
    world.api.compact()
    world.transport.expire_tokens()
    world.api.cut_watches()


STEPS: Mapping[str, Callable[[World, Step], None]] = {
    **CLIENT_STEPS,
    **CARD_STEPS,
    **MIGRATION_STEPS,
    "start-standby": _start_standby,
    "crash": _crash,
    "stop": _stop,
    "jump-clock": _jump_clock,
    "cut-log": _cut_log,
    "slow-log": _slow_log,
    "restart-log": _restart_log,
    "retain": _retain,
    "usurp": _usurp,
    "forge": forge,
    "silence": _silence,
    "jump-log-clock": _jump_log_clock,
    "cut-bus": _cut_bus,
    "restart-bus": _restart_bus,
    "messages": _messages,
    "api": _api,
    "cut-api": _cut_api,
    "wrong-cluster": _wrong_cluster,
    "second-system": _second_system,
    "lag-watches": _lag_watches,
    "expire-watches": _expire_watches,
}
"""Name -> what it does."""
