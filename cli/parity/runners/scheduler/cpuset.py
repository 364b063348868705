"""The `cpuset` cases: single allocations of CPUs, required bind policies, and lists of CPUs.

A case becomes a node with a NodeResourceTopology, running pods with their allocations, and a pod that requests CPUs of
its own, which a cycle gives it. CPUs that a reservation or a victim hands back are taken out of the running pods'
annotations, oldest pod first, which leaves the newest pod's exclusive policy in place.

A pod that leaves its bind policy open (`Default` or none) spreads over cores in the record, so that is the
configuration's default. One kind of case reaches no cycle: CPUs that are preferred because a reservation held them, for
this scheduler has no reservations. There the accumulator is called as the plugin calls it, with the CPUs that the
folded node has free.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cli.parity.runners.scheduler.numa import NumaCluster
from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.plugins.node_numa_resource.cpu_accumulator import NotEnoughCpus, Take, take_preferred
from services.scheduler.plugins.node_numa_resource.cpus_permitted_by_bind_policy import satisfies
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import (
    ALLOCATE_STRATEGY,
    CPU_MANAGER,
    CPU_TOPOLOGY,
)
from services.scheduler.plugins.registry import text
from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus
from shared.domain.pod_annotations import RESOURCE_SPEC
from shared.kube.system_annotations import RESOURCE_STATUS

Raw = dict[str, Any]
_PRIORITY = 9500  # of the prod band
_NODE = "node-1"


def answer(op: str, given: Mapping[str, Any]) -> Raw:
    """Answers one case in the shape of its output."""
    if op == "parse":
        try:
            cpus = parse_cpus(given["text"])
        except BadCpuList:
            return {"error": True}
        return {"cpuset": cpu_list(cpus), "size": len(cpus)}
    return _required(given) if op == "required" else _take(given)


def _required(given: Mapping[str, Any]) -> Raw:
    cpus, policy = parse_cpus(given["cpuset"]), given["policy"]
    reserved = {row[0] for row in given["cpus"]} - cpus
    node = NumaCluster(_machine(given["cpus"], reserved)).node
    satisfied = satisfies(node.options.topology, policy, cpus)
    found = {"usable": cpu_list(node.usable(policy).cpus), "satisfied": satisfied}
    return found if satisfied else found | {"error": text("CpuBindPolicyUnsatisfied", policy)}


def _take(given: Mapping[str, Any]) -> Raw:
    machine = _machine(given["cpus"], parse_cpus(given["reserved"]), given["numaAllocateStrategy"])
    holdings = [set(parse_cpus(pod["cpuset"])) for pod in given["pods"]]
    for returned in (given["preferred"], given["preemptible"]):
        _hand_back(holdings, parse_cpus(returned))
    running = [
        _pod(f"running-{number}", {"preferredCPUExclusivePolicy": pod["exclusive"]}, on=_NODE, cpus=cpus)
        for number, (pod, cpus) in enumerate(zip(given["pods"], holdings, strict=True))
    ]
    args = {"defaultCPUBindPolicy": policy_names.SPREAD}
    cluster = NumaCluster({**machine, "args": args, "maxRefCount": given["maxRefCount"], "runningPods": running})
    node, preferred = cluster.node, parse_cpus(given["preferred"])
    assert isinstance(node.free_cpus, frozenset), "the topology is valid"
    found = {"available": cpu_list(node.free_cpus), **_held(node)}
    if preferred:
        return found | _accumulated(given, node, preferred)
    spec = {"preferredCPUBindPolicy": given["bindPolicy"], "preferredCPUExclusivePolicy": given["exclusivePolicy"]}
    tried = cluster.cycle(_pod("incoming", spec, requests=given["need"]))
    if tried["preFilter"]["code"] == "Skip":
        return found | {"cpuset": ""}  # it requests nothing
    if tried["reserve"]["code"] != "Success":
        return found | {"error": ", ".join(tried["reserve"]["reasons"])}
    return found | {"cpuset": tried["allocation"]["cpuset"]}


def _accumulated(given: Mapping[str, Any], node: NumaNode, preferred: frozenset[int]) -> Raw:
    take = Take(
        need=given["need"],
        bind=given["bindPolicy"],
        exclusive=given["exclusivePolicy"],
        strategy=given["numaAllocateStrategy"],
        max_pods=given["maxRefCount"],
    )
    available = node.usable("").cpus
    try:
        taken = take_preferred(node.options.topology, take, available, preferred, node.usage.cpus.allocated)
    except NotEnoughCpus:
        return {"error": text("NotEnoughCpus")}
    return {"cpuset": cpu_list(taken)}


def _held(node: NumaNode) -> Raw:
    counts: dict[str, list[int]] = {}
    exclusive: dict[str, list[int]] = {}
    for cpu, allocated in node.usage.cpus.allocated.items():
        counts.setdefault(str(allocated.pods), []).append(cpu)
        exclusive.setdefault(allocated.exclusive, []).append(cpu)
    return {
        "refs": {count: cpu_list(cpus) for count, cpus in counts.items()},
        "exclusive": {policy: cpu_list(cpus) for policy, cpus in exclusive.items() if policy},
    }


def _hand_back(holdings: list[set[int]], cpus: Iterable[int]) -> None:
    """Removes one pod from each of the CPUs that are held."""
    for cpu in cpus:
        oldest = next((allocated for allocated in holdings if cpu in allocated), None)
        if oldest is not None:
            oldest.discard(cpu)


def _machine(rows: Iterable[tuple[int, int, int, int]], reserved: Iterable[int], strategy: str = "") -> Raw:
    """Returns a node and its NodeResourceTopology."""
    detail = [{"id": id_, "core": core, "socket": socket, "node": numa} for id_, core, socket, numa in rows]
    notes = {
        CPU_TOPOLOGY: json.dumps({"detail": detail}),
        CPU_MANAGER: json.dumps({"reservedCPUs": cpu_list(reserved)}),
    }
    return {
        "node": {"metadata": {"name": _NODE, "labels": {ALLOCATE_STRATEGY: strategy}}, "status": {"allocatable": {}}},
        "nodeResourceTopology": {"metadata": {"name": _NODE, "annotations": notes}},
    }


def _pod(name: str, spec: Mapping[str, str], *, requests: int = 0, on: str = "", cpus: Iterable[int] = ()) -> Raw:
    """Returns a pod of class LSR: one that waits and requests CPUs, or one that runs on a node and holds some."""
    allocated = cpu_list(cpus)
    notes = {RESOURCE_SPEC: json.dumps(spec)}
    status = {RESOURCE_STATUS: json.dumps({"cpuset": allocated})} if allocated else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {"koordinator.sh/qosClass": "LSR"},
            "annotations": notes | status,
        },
        "spec": {
            "nodeName": on,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": str(requests)}}}],
            "priority": _PRIORITY,
        },
    }
