"""Pods and Reservations that wait in a world at rest, although there is room for them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from cli.dev.fault_simulation.cluster_objects import Body
from cli.dev.fault_simulation.gang_invariant import gang_of
from cli.dev.fault_simulation.gangs_and_reservations import OWNER, OWNER_LABEL
from cli.dev.fault_simulation.held_capacity import KINDS, requested
from cli.dev.fault_simulation.memory_api import STORAGE_CLASSES
from cli.dev.fault_simulation.plan import SETTLES_S
from cli.dev.fault_simulation.volumes import LOCAL, USES_VOLUME, claims_of, node_of
from cli.dev.fault_simulation.workload_controller import owner_of
from cli.dev.fault_simulation.world import World
from services.scheduler.queue.retries import LONGEST_BACKOFF_S, backoff_ends_ns
from shared.kube import resource_names
from shared.kube.elastic_quota import QUOTA_NAME
from shared.kube.instants import SECOND, duration_ns, instant_ns
from shared.kube.pod import ENDED_PHASES
from shared.kube.quantity import nanos
from shared.kube.storage import SELECTED_NODE

PLAIN = "plain"
CERTAIN_KINDS = frozenset({PLAIN, "team-a", "team-b", "high", "guarded"})
"""Kinds of pods whose node can be found by comparing requests with what is free."""

CERTAIN_RESERVATIONS = ("reserved-",)
"""Beginnings of the names of Reservations whose node can be found likewise."""

EXPIRES_WITHIN_NS = 3 * SECOND
"""The time of creation is cut to seconds, the life cycle runs once a second, and its decision is then written."""

_Free = dict[str, dict[str, int]]
"""Node -> resource -> nanos that neither pods nor Reservations have."""


class Wait(NamedTuple):
    """A pod, gang or Reservation that waits although a node has room for it.

    Attributes:
        text: names it and the room.
        retry_ns: nanoseconds since the epoch from which on the wait is a fault: the end of its backoff, since the room
            may have become free after its last attempt. For a pod with a held node: the time by which it is bound.
    """

    text: str
    retry_ns: int


def waiting(world: World) -> Iterator[Wait]:
    """Yields the pods, gangs and Reservations that wait although a node has room for them."""
    free = _free(world)
    gangs: dict[str, list[Body]] = {}
    for pod in world.invariants.live_pods():
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            continue
        name = pod["metadata"]["name"]
        kind = PLAIN if owner_of(pod) else world.kinds.get(name)
        if gang := gang_of(pod):
            gangs.setdefault(gang, []).append(pod)
        elif kind == USES_VOLUME:
            yield from _waiting_with_volumes(world, pod, free)
        elif (kind in CERTAIN_KINDS or kind == OWNER) and _has_quota(world, [pod]):
            node = next(iter(_nodes_for([pod], free)), None) or (_reserved_for(world, pod) if kind == OWNER else None)
            if node is not None:
                yield Wait(f"{name} waits, although {node} has room for it", _retry_ns(world, [pod]))
    for gang, pods in gangs.items():
        yield from _waiting_members(world, gang, pods, free)
    yield from _reservations(world, free)


def _waiting_members(world: World, gang: str, pods: list[Body], free: _Free) -> Iterator[Wait]:
    """Yields a gang of which no pod has a node although so many as it needs have room, or a member of one that has.

    Members whose nodes were released because the others had none wait for these: until the last backoff ends.
    """
    pod_group = world.api.objects[resource_names.POD_GROUPS].get(gang)
    if pod_group is None:
        return
    holding = [pod["metadata"]["uid"] for pod in world.invariants.held.holding_pods()]
    with_a_node = [pod for pod in pods if pod["metadata"]["uid"] in holding]
    minimum = 0 if world.invariants.is_satisfied(gang) else pod_group["spec"]["minMember"]
    if with_a_node and len(with_a_node) >= minimum:
        text = f"{len(with_a_node)} members of {gang} have nodes that are held for them, and are not bound"
        yield Wait(text, _held_ns(world, with_a_node))
    needed = max(minimum - len(with_a_node), 1)
    members = [pod for pod in pods if pod not in with_a_node][:needed]
    if len(members) == needed and _has_quota(world, members) and (nodes := _nodes_for(members, free)):
        text = f"{needed} members of {gang} wait, although {', '.join(nodes)} have room for them"
        yield Wait(text, max(_retry_ns(world, [member]) for member in members))


def _waiting_with_volumes(world: World, pod: Body, free: _Free) -> Iterator[Wait]:
    """Yields a pod that waits although a node that reaches its volume, or on which one can be provisioned, has room.

    Nothing is provisioned for a claim whose class does not exist: its pod waits for the class. A claim that waits is
    provisioned on the node of its bound user: one that was bound before the claim came again under its name.
    """
    claim = world.api.objects[resource_names.CLAIMS].get(claims_of(pod)[0])
    if claim is None or claim["metadata"].get("deletionTimestamp"):
        return
    bound = world.api.objects[resource_names.VOLUMES].get(claim["spec"].get("volumeName", ""))
    if bound is not None:
        free = {node: amounts for node, amounts in free.items() if node == node_of(bound)}
    elif claim["spec"]["storageClassName"] not in world.api.objects[STORAGE_CLASSES]:
        return
    elif selected := claim["metadata"].get("annotations", {}).get(SELECTED_NODE):
        free = {node: amounts for node, amounts in free.items() if node == selected}
    elif claim["spec"]["storageClassName"] == LOCAL:
        return
    elif users := _nodes_of_users(world, claims_of(pod)[0]):
        free = {node: amounts for node, amounts in free.items() if node in users}
    if pod in world.invariants.held.holding_pods():
        text = f"{pod['metadata']['name']} has a node that is held for it, and its volume is not bound"
        yield Wait(text, _held_ns(world, [pod]))
    elif nodes := _nodes_for([pod], free):
        yield Wait(f"{pod['metadata']['name']} waits, although {nodes[0]} has room for it", _retry_ns(world, [pod]))


def _nodes_of_users(world: World, claim: str) -> frozenset[str]:
    """Returns the nodes of the bound pods that use a claim."""
    users = (pod for pod in world.invariants.live_pods() if claim in claims_of(pod))
    return frozenset(pod["spec"]["nodeName"] for pod in users if pod["spec"].get("nodeName"))


def _reservations(world: World, free: _Free) -> Iterator[Wait]:
    """Yields a Reservation that waits although a node has room for it, and one that has not ended at its time.

    One with CPUs, or that needs running pods, may wait for these; it never joins one of the other policy. One without a
    node does not expire (spec/scheduler-workloads.md 1.3).
    """
    now_ns = world.now_ns()
    for name, body in world.api.objects[resource_names.RESERVATIONS].items():
        status = body.get("status", {})
        if status.get("nodeName"):
            expires_ns = instant_ns(body["metadata"]["creationTimestamp"]) + duration_ns(body["spec"]["ttl"])
            due_ns = max(expires_ns, _scheduled_ns(status)) + EXPIRES_WITHIN_NS
            if status["phase"] not in ENDED_PHASES and now_ns > due_ns:
                yield Wait(
                    f"{name} is {status['phase']}, {(now_ns - expires_ns) / SECOND:.1f} s after it has expired", 0
                )
        elif name.startswith(CERTAIN_RESERVATIONS) and (
            nodes := _nodes_for([body["spec"]["template"]], _without_restricted(world, free))
        ):
            yield Wait(f"{name} waits, although {nodes[0]} has room for it", _retry_ns(world, [body]))


def _scheduled_ns(status: Body) -> int:
    """Returns when the status of a Reservation got its node."""
    scheduled = (each for each in status.get("conditions", ()) if each["type"] == "Scheduled")
    return max((instant_ns(each["lastTransitionTime"]) for each in scheduled), default=0)


def _without_restricted(world: World, free: _Free) -> _Free:
    return {
        node: amounts
        for node, amounts in free.items()
        if not any(held.is_restricted for held in world.invariants.held.on(node))
    }


def _held_ns(world: World, pods: Iterable[Body]) -> int:
    """Returns the time by which pods are bound for which nodes are held, counted from the newest hold."""
    since_s = max(world.invariants.held.since_s(pod) for pod in pods)
    return world.now_ns() + int((since_s + SETTLES_S - world.loop.time()) * SECOND)


def _retry_ns(world: World, objects: Iterable[Body]) -> int:
    """Returns when the first of these pods or Reservations may be tried again; 0 where the scheduler does not lead."""
    leader = world.leader("scheduler")
    if leader is None or leader.runtime is None:
        return 0
    there = leader.runtime.state.pods
    ends_ns = list[int]()
    for body in objects:
        record = there.get(body["metadata"]["uid"])
        if record is None:
            return 0
        ends_ns.append(backoff_ends_ns(record.attempts, record.tried_ns, record.refusals, record.placed_ns))
    latest_ns: int = world.now_ns() + LONGEST_BACKOFF_S * SECOND
    return min(*ends_ns, latest_ns)


def _reserved_for(world: World, pod: Body) -> str | None:
    """Returns the node of a Reservation that a pod owns and fits into; no pod is placed on a cordoned one."""
    name = pod["metadata"]["labels"][OWNER_LABEL]
    for node, body in world.api.objects["nodes"].items():
        if body["spec"].get("unschedulable"):
            continue
        for held in world.invariants.held.on(node):
            is_open = held.name == name and not (held.once and held.owners)
            if is_open and all(requested(pod, kind) <= held.left[kind] for kind in KINDS):
                return f"{name} on {node}"
    return None


def _free(world: World) -> _Free:
    """Returns what is free on each node, but for those that are cordoned, or on which a pod may not use all NUMA nodes."""
    pods, free = world.invariants.live_pods(), _Free()
    topologies = world.api.objects[resource_names.NODE_TOPOLOGIES]
    for name, node in world.api.objects["nodes"].items():
        if name in topologies and topologies[name]["topologyPolicies"] != ["None"]:
            continue
        if node["spec"].get("unschedulable"):
            continue
        there = [pod for pod in pods if pod["spec"].get("nodeName") == name]
        held = world.invariants.held.on(name)
        free[name] = {
            kind: nanos(node["status"]["allocatable"][kind])
            - sum(requested(pod, kind) for pod in there)
            - sum(each.left[kind] for each in held)
            for kind in KINDS
        }
    return free


def _nodes_for(pods: list[Body], free: _Free) -> tuple[str, ...]:
    """Returns nodes that have room for all of these pods at once, one for each; none where there are none."""
    for nodes in product(free, repeat=len(pods)):
        if all(_fit([pod for pod, at in zip(pods, nodes, strict=True) if at == node], free[node]) for node in nodes):
            return nodes
    return ()


def _fit(pods: list[Body], free: Mapping[str, int]) -> bool:
    return all(sum(requested(pod, kind) for pod in pods) <= free[kind] for kind in KINDS)


def _has_quota(world: World, waiting_pods: list[Body]) -> bool:
    """Reports whether the quota of these pods, which have one, has room for all of them."""
    name = waiting_pods[0]["metadata"].get("labels", {}).get(QUOTA_NAME)
    if not name:
        return True
    pods, nodes = world.invariants.live_pods(), world.api.objects["nodes"].values()
    if sum(requested(each, "cpu") for each in pods) > sum(
        nanos(node["status"]["allocatable"]["cpu"]) for node in nodes
    ):
        return False  # quotas share what the others leave: less than their max
    quota = next(each for each in world.api.objects[resource_names.QUOTAS].values() if each["metadata"]["name"] == name)
    used = used_of(world, name)
    return used + sum(requested(pod, "cpu") for pod in waiting_pods) <= nanos(quota["spec"]["max"]["cpu"])


def used_of(world: World, quota: str) -> int:
    """Returns the cpu, in nanos, that the pods of a quota with a node request, those with a held node included."""
    holding = [pod["metadata"]["uid"] for pod in world.invariants.held.holding_pods()]
    return sum(
        requested(pod, "cpu")
        for pod in world.invariants.live_pods()
        if (pod["spec"].get("nodeName") or pod["metadata"]["uid"] in holding)
        and pod["metadata"].get("labels", {}).get(QUOTA_NAME) == quota
    )
