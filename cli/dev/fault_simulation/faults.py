"""The steps of a plan, carried out on a world. A step whose target does not exist does nothing."""

from collections.abc import Callable, Mapping
from functools import partial

from cli.dev.fault_simulation import cluster_objects, gangs_and_reservations
from cli.dev.fault_simulation.api_transport import ApiFault
from cli.dev.fault_simulation.forged_announcements import any_bound_pod, forge
from cli.dev.fault_simulation.gangs_and_reservations import MEMBERS, OWNER
from cli.dev.fault_simulation.invariants import STATUS
from cli.dev.fault_simulation.memory_api import Refused, key_of
from cli.dev.fault_simulation.memory_bus import NO_FAULTS, Faults
from cli.dev.fault_simulation.memory_log import KEEPALIVE_S
from cli.dev.fault_simulation.plan import DRAINS, BadPlan, Step
from cli.dev.fault_simulation.replica import GATEWAY, Replica
from cli.dev.fault_simulation.virtual_loop import Process
from cli.dev.fault_simulation.world import World
from shared.events import Draft
from shared.events.intents import EvictionRequested
from shared.kube import resource_names
from shared.kube.system_annotations import DEVICE_ALLOCATED

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


# -- clients


def _create_pod(world: World, step: Step) -> None:
    key = f"{cluster_objects.NAMESPACE}/{step.target}"
    if key not in world.api.objects["pods"]:
        is_grouped = step.what in (*MEMBERS, OWNER)
        body = gangs_and_reservations.grouped_pod if is_grouped else cluster_objects.pod
        world.api.create("pods", body(step.target, step.what, step.number))


def _create_gang(world: World, step: Step) -> None:
    if f"{cluster_objects.NAMESPACE}/{step.target}" not in world.api.objects[resource_names.POD_GROUPS]:
        body = gangs_and_reservations.pod_group(step.target, step.number, step.what, step.for_s)
        world.api.create(resource_names.POD_GROUPS, body)


def _delete_gang(world: World, step: Step) -> None:
    """Deletes a PodGroup; its members stay."""
    key = f"{cluster_objects.NAMESPACE}/{step.target}"
    if key in world.api.objects[resource_names.POD_GROUPS]:
        world.api.delete(resource_names.POD_GROUPS, key)


def _create_reservation(world: World, step: Step) -> None:
    if step.target not in world.api.objects[resource_names.RESERVATIONS]:
        is_once = step.what == "once"
        body = gangs_and_reservations.reservation(step.target, step.number, once=is_once, ttl_s=step.for_s)
        world.api.create(resource_names.RESERVATIONS, body)


def _delete_reservation(world: World, step: Step) -> None:
    if step.target in world.api.objects[resource_names.RESERVATIONS]:
        world.api.delete(resource_names.RESERVATIONS, step.target)


def _delete_pod(world: World, step: Step) -> None:
    try:
        world.api.delete("pods", f"{cluster_objects.NAMESPACE}/{step.target}")
    except Refused:
        return


def _request_eviction(world: World, step: Step) -> None:
    pod = world.api.objects["pods"].get(f"{cluster_objects.NAMESPACE}/{step.target}")
    node = pod["spec"].get("nodeName") if pod else None
    if pod is not None and node in world.agents:
        world.operator.evictions_requested += 1
        if world.operator.evictions_requested > GATEWAY.evictions_per_node:
            # One that waits for budget becomes too old, but not where the clock of its service was ahead.
            _watch_evictions(world)
        agent = world.agents[node]
        world.loop.spawn(agent.process, agent.request_eviction(pod["metadata"]["uid"]))


def _evict_all(world: World, _step: Step) -> None:
    """Lets the agents request the eviction of all their pods: more than the budgets allow."""
    _watch_evictions(world)
    for pod in list(world.api.objects["pods"].values()):
        _request_eviction(world, Step(0.0, "", pod["metadata"]["name"]))


def _crash_in_evictions(world: World, step: Step) -> None:
    """Crashes the gateway so many callbacks after the API server has accepted the next eviction."""
    world.crash_in_evictions = step.number


def _hold_evictions(world: World, _step: Step) -> None:
    _watch_evictions(world)
    world.loop.spawn(world.operator.process, world.operator.hold_evictions())


def _watch_evictions(world: World) -> None:
    operator = world.operator
    if not operator.watches_evictions:
        operator.watches_evictions = True
        world.loop.spawn(operator.process, operator.watch_evictions())


def _forge_allocations(world: World, _step: Step) -> None:
    """Lets tenants write into their pods that they have another CPU than they were given."""
    for key, pod in list(world.api.objects["pods"].items()):
        annotations = pod["metadata"].get("annotations", {})
        if pod["metadata"].get("deletionTimestamp"):
            continue
        if DEVICE_ALLOCATED in annotations:
            forged = {**annotations, DEVICE_ALLOCATED: '{"gpu":[{"minor":9}]}'}
            world.api.put("pods", key, {**pod, "metadata": {**pod["metadata"], "annotations": forged}})
        if STATUS not in annotations:
            continue
        cpu = "0" if str(cluster_objects.NODE_CORES - 1) in annotations[STATUS] else cluster_objects.NODE_CORES - 1
        forged = {**annotations, STATUS: f'{{"cpuset":"{cpu}"}}'}
        world.api.put("pods", key, {**pod, "metadata": {**pod["metadata"], "annotations": forged}})


def _add_devices(world: World, _step: Step) -> None:
    for name in list(world.api.objects["nodes"]):
        if name not in world.api.objects[resource_names.DEVICES]:
            world.api.create(resource_names.DEVICES, cluster_objects.device(name))


def _raise_quota(world: World, step: Step) -> None:
    key = f"{cluster_objects.NAMESPACE}/{step.target}"
    quota = world.api.objects[resource_names.QUOTAS][key]
    spec = {**quota["spec"], "max": {**quota["spec"]["max"], "cpu": str(step.number)}}
    world.api.put(resource_names.QUOTAS, key, {**quota, "spec": spec})


def _add_node(world: World, step: Step) -> None:
    if step.target not in world.api.objects["nodes"]:
        world.api.create("nodes", cluster_objects.node(step.target))
        world.start_agent(step.target)


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
    "create-pod": _create_pod,
    "create-gang": _create_gang,
    "delete-gang": _delete_gang,
    "create-reservation": _create_reservation,
    "delete-reservation": _delete_reservation,
    "delete-pod": _delete_pod,
    "request-eviction": _request_eviction,
    "evict-all": _evict_all,
    "crash-in-evictions": _crash_in_evictions,
    "hold-evictions": _hold_evictions,
    "forge-allocations": _forge_allocations,
    "add-devices": _add_devices,
    "raise-quota": _raise_quota,
    "add-node": _add_node,
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
