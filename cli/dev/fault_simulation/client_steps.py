"""The steps of clients: they create, change and delete objects. A step whose target does not exist does nothing."""

from collections.abc import Callable, Mapping

from cli.dev.fault_simulation import cluster_objects, gangs_and_reservations, volumes
from cli.dev.fault_simulation.gangs_and_reservations import MEMBERS, OWNERS
from cli.dev.fault_simulation.memory_api import STORAGE_CLASSES, Refused
from cli.dev.fault_simulation.plan_step import Step
from cli.dev.fault_simulation.world import World
from shared.kube import resource_names
from shared.kube.system_annotations import DEVICE_ALLOCATED, RESOURCE_STATUS


def _create_pod(world: World, step: Step) -> None:
    key = f"{cluster_objects.NAMESPACE}/{step.target}"
    if key in world.api.objects["pods"]:
        return
    if step.what == volumes.USES_VOLUME:
        world.api.create("pods", volumes.pod_with_claim(step.target, step.number))
        return
    is_grouped = step.what in (*MEMBERS, *OWNERS)
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
        body = gangs_and_reservations.reservation(step.target, step.number, step.what.split(), step.for_s)
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
        agent = world.agents[node]
        world.begin(agent.process, agent.request_eviction, pod["metadata"]["uid"])


def _evict_all(world: World, _step: Step) -> None:
    """Lets the agents request the eviction of all their pods: more than the budgets allow."""
    for pod in list(world.api.objects["pods"].values()):
        _request_eviction(world, Step(0.0, "", pod["metadata"]["name"]))


def _crash_in_evictions(world: World, step: Step) -> None:
    """Crashes the gateway so many callbacks after the API server has accepted the next eviction."""
    world.crash_in_evictions = step.number


def _hold_evictions(world: World, _step: Step) -> None:
    world.begin(world.operator.process, world.operator.hold_evictions)


def _forge_allocations(world: World, _step: Step) -> None:
    """Lets tenants write into their pods that they have another CPU than they were given."""
    for key, pod in list(world.api.objects["pods"].items()):
        annotations = pod["metadata"].get("annotations", {})
        if pod["metadata"].get("deletionTimestamp"):
            continue
        if DEVICE_ALLOCATED in annotations:
            forged = {**annotations, DEVICE_ALLOCATED: '{"gpu":[{"minor":9}]}'}
            world.api.put("pods", key, {**pod, "metadata": {**pod["metadata"], "annotations": forged}})
        if RESOURCE_STATUS not in annotations:
            continue
        cpu = (
            "0"
            if str(cluster_objects.NODE_CORES - 1) in annotations[RESOURCE_STATUS]
            else cluster_objects.NODE_CORES - 1
        )
        forged = {**annotations, RESOURCE_STATUS: f'{{"cpuset":"{cpu}"}}'}
        world.api.put("pods", key, {**pod, "metadata": {**pod["metadata"], "annotations": forged}})


def _add_storage(world: World, _step: Step) -> None:
    for name in (volumes.LOCAL, volumes.MADE):
        world.api.create(STORAGE_CLASSES, volumes.storage_class(name))
    for node, sizes in volumes.LOCAL_VOLUMES.items():
        for number, size in enumerate(sizes):
            world.api.create(resource_names.VOLUMES, volumes.volume(f"{node}-{number}", volumes.LOCAL, node, size))


def _create_claim(world: World, step: Step) -> None:
    if f"{cluster_objects.NAMESPACE}/{step.target}" not in world.api.objects[resource_names.CLAIMS]:
        world.api.create(resource_names.CLAIMS, volumes.claim(step.target, step.what, f"{step.number}Gi"))


def _delete_claim(world: World, step: Step) -> None:
    """Deletes a claim; it ends once no pod with a node uses it."""
    key = f"{cluster_objects.NAMESPACE}/{step.target}"
    body = world.api.objects[resource_names.CLAIMS].get(key)
    if body is not None:
        deleted = {**body["metadata"], "deletionTimestamp": body["metadata"]["creationTimestamp"]}
        world.api.put(resource_names.CLAIMS, key, {**body, "metadata": deleted})


def _split_zones(world: World, _step: Step) -> None:
    """Makes each node one of two NUMA nodes; a pod may not use both of some."""
    for number, name in enumerate(list(world.api.objects[resource_names.NODE_TOPOLOGIES])):
        before = world.api.objects[resource_names.NODE_TOPOLOGIES][name]
        body = cluster_objects.topology(name, zones=2, policy=cluster_objects.ZONE_POLICIES[number])
        metadata = {**before["metadata"], **body["metadata"]}
        world.api.put(resource_names.NODE_TOPOLOGIES, name, {**body, "metadata": metadata})


def _set_max(world: World, step: Step) -> None:
    key = f"{cluster_objects.NAMESPACE}/{step.target}"
    quota = world.api.objects[resource_names.QUOTAS][key]
    spec = {**quota["spec"], "max": {**quota["spec"]["max"], "cpu": str(step.number)}}
    world.api.put(resource_names.QUOTAS, key, {**quota, "spec": spec})


def _lower_quota(world: World, step: Step) -> None:
    _set_max(world, step)


def _add_node(world: World, step: Step) -> None:
    if step.target not in world.api.objects["nodes"]:
        world.api.create("nodes", cluster_objects.node(step.target))
        world.start_agent(step.target)


CLIENT_STEPS: Mapping[str, Callable[[World, Step], None]] = {
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
    "add-storage": _add_storage,
    "create-claim": _create_claim,
    "delete-claim": _delete_claim,
    "split-zones": _split_zones,
    "raise-quota": _set_max,
    "lower-quota": _lower_quota,
    "add-node": _add_node,
}
"""Name -> what it does."""
