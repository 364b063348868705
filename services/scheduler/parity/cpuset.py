"""The `cpuset` vectors: single allocations of CPUs, required bind policies, and lists of CPUs."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.plugins.numa.accumulator import NotEnoughCpus, Take, take_preferred
from services.scheduler.plugins.numa.ledger import CpuBook
from services.scheduler.plugins.numa.required import obeys, usable_cpus
from services.scheduler.plugins.numa.topology import CpuTopology
from services.scheduler.reasons import text
from shared.domain.cpu_set import BadCpuList, cpu_list, parse_cpus


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    if op == "parse":
        try:
            cpus = parse_cpus(given["text"])
        except BadCpuList:
            return {"error": True}
        return {"cpuset": cpu_list(cpus), "size": len(cpus)}
    topology = CpuTopology(given["cpus"])
    return _required(topology, given) if op == "required" else _take(topology, given)


def _required(topology: CpuTopology, given: Mapping[str, Any]) -> dict[str, Any]:
    cpus, policy = parse_cpus(given["cpuset"]), given["policy"]
    satisfied = obeys(topology, policy, cpus)
    said = {"usable": cpu_list(usable_cpus(topology, policy, cpus)), "satisfied": satisfied}
    return said if satisfied else said | {"error": text("CpuBindPolicyUnsatisfied", policy)}


def _take(topology: CpuTopology, given: Mapping[str, Any]) -> dict[str, Any]:
    book = CpuBook()
    for pod in given["pods"]:
        book = book.added(parse_cpus(pod["cpuset"]), pod["exclusive"])
    preferred, preemptible = parse_cpus(given["preferred"]), parse_cpus(given["preemptible"])
    for returned in (preferred, preemptible):
        book = book.removed(returned)
    available = book.available(topology, given["maxRefCount"]) - parse_cpus(given["reserved"])
    take = Take(
        need=given["need"],
        bind=given["bindPolicy"],
        exclusive=given["exclusivePolicy"],
        strategy=given["numaAllocateStrategy"],
        max_pods=given["maxRefCount"],
    )
    counts: dict[str, list[int]] = {}
    exclusive: dict[str, list[int]] = {}
    for cpu, held in book.held.items():
        counts.setdefault(str(held.pods), []).append(cpu)
        exclusive.setdefault(held.exclusive, []).append(cpu)
    said = {
        "available": cpu_list(available),
        "refs": {count: cpu_list(cpus) for count, cpus in counts.items()},
        "exclusive": {policy: cpu_list(cpus) for policy, cpus in exclusive.items() if policy},
    }
    try:
        return said | {"cpuset": cpu_list(take_preferred(topology, take, available, preferred, book.held))}
    except NotEnoughCpus:
        return said | {"error": text("NotEnoughCpus")}
