"""The `numa` vectors: what nodes offer, merging of hints, and pods against one node."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from services.scheduler.plugins.numa.allocate import NumaNode
from services.scheduler.plugins.numa.args import read_numa_args
from services.scheduler.plugins.numa.combinations import Hint
from services.scheduler.plugins.numa.cycle import Cycle, Whole
from services.scheduler.plugins.numa.demand import Refused, read_demand
from services.scheduler.plugins.numa.hints import Strategies, hints_of
from services.scheduler.plugins.numa.ledger import Allocation, Amounts, NodeBook, ZoneUse
from services.scheduler.plugins.numa.merge import mask_of, merge, numas_of
from services.scheduler.plugins.numa.options import NodeOptions, Zone, node_options
from services.scheduler.plugins.numa.wire import RESOURCE_SPEC, allocation_of, annotations_for
from services.scheduler.reasons import Reason, text
from shared.domain.cpu_set import cpu_list
from shared.domain.requests import pod_requests, whole
from shared.kube.node import Node
from shared.kube.node_topology import NodeResourceTopology
from shared.kube.pod import Pod
from shared.kube.quantity import amounts


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What our code says to one case's input, in the shape of the case's output."""
    if op == "options":
        return _options(_read(given))
    if op == "merge":
        return _merge(given)
    return _cycle(given) if op == "cycle" else _sequence(given)


def _read(given: Mapping[str, Any]) -> NodeOptions:
    reported = given.get("nodeResourceTopology")
    return node_options(
        msgspec.convert(given["node"], Node), msgspec.convert(reported, NodeResourceTopology) if reported else None
    )


def _options(options: NodeOptions) -> dict[str, Any]:
    topology = options.topology
    return {
        "valid": topology.valid,
        "numCPUs": len(topology.cpus),
        "numCores": len(topology.in_core),
        "numNodes": len(topology.in_numa),
        "numSockets": len(topology.sockets),
        "cpusPerCore": topology.cpus_per_core,
        "cpusPerNode": topology.cpus_per_numa,
        "cpusPerSocket": topology.cpus_per_socket,
        "reservedCPUs": cpu_list(options.reserved),
        "nrtPolicy": options.reported_policy,
        "nodePolicy": options.numa_policy,
        "nodeBindPolicy": options.bind_policy,
        "numaTotal": _zones(options.reported),
        "numaTotalAmplified": _zones(options.zones),
        "ratios": dict(options.reported_ratios),
    }


def _zones(zones: Iterable[Zone]) -> list[dict[str, Any]]:
    return [{"node": zone.numa, "resources": dict(zone.total)} for zone in zones]


def _merge(given: Mapping[str, Any]) -> dict[str, Any]:
    status = dict(enumerate(map(ZoneUse, given["numaStatus"])))
    providers = [
        {name: None if hints is None else [_hint(hint) for hint in hints] for name, hints in (provider or {}).items()}
        for provider in given["providers"]
    ]
    merged = merge(
        given["policy"], given["numaNodes"], providers, given["exclusive"], lambda n: status.get(n, ZoneUse.IDLE)
    )
    said = {"best": _affinity(merged.best), "admit": merged.admitted}
    reasons = [Reason("UnsatisfiedNuma", name) for name in merged.unsatisfied]
    if merged.unaligned or not (merged.admitted or reasons):
        reasons.append(Reason("UnalignedNuma", merged.unaligned))
    return said | {"reasons": sorted(text(*reason) for reason in reasons)}


def _hint(plain: Mapping[str, Any]) -> Hint:
    mask = plain.get("mask")
    return Hint(
        None if mask is None else mask_of(mask),
        plain["preferred"],
        plain.get("score", 0),
        plain.get("unsatisfied", False),
    )


def _affinity(hint: Hint) -> dict[str, Any]:
    return {
        "mask": None if hint.mask is None else numas_of(hint.mask),
        "preferred": hint.preferred,
        "score": hint.score,
        "unsatisfied": hint.unsatisfied,
    }


class _OneNode:
    """A node, the pods on it, and the pods that come."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.node = msgspec.convert(given["node"], Node)
        self.options = _read(given)
        self.max_pods = given["maxRefCount"]
        self.args = read_numa_args(given["args"])
        self.allocations: dict[str, Allocation] = {}
        self.requests: dict[str, Amounts] = {}
        self.zones_seen: dict[int, dict[str, int]] = {}
        for pod in msgspec.convert(given.get("runningPods", []), list[Pod]):
            self.requests[pod.metadata.uid] = whole(pod_requests(pod))
            if pod.status.phase not in ("Succeeded", "Failed"):
                self.hold(pod.metadata.uid, allocation_of(pod.metadata.annotations))

    def hold(self, uid: str, allocation: Allocation) -> None:
        self.allocations.pop(uid, None)
        if allocation:
            self.allocations[uid] = allocation

    def numa(self) -> NumaNode:
        return NumaNode(self.options, NodeBook(self.options.topology, self.allocations.values()), self.max_pods)

    def whole(self) -> Whole:
        requested: dict[str, int] = {}
        for amounts_ in self.requests.values():
            for name, size in amounts_.items():
                requested[name] = requested.get(name, 0) + size
        return Whole(amounts(self.node.status.allocatable or {}), requested)

    def cycle(self, pod: Pod, *, alone: bool) -> dict[str, Any]:
        requests = whole(pod_requests(pod))
        demand = read_demand(pod, requests, self.args.bind)
        if demand is None:
            return {"preFilter": {"code": "Skip"}}
        if isinstance(demand, Refused):
            return {"preFilter": _status(demand)}
        node, on_node = self.numa(), self.whole()
        strategies = self.args.strategies
        cycle = Cycle(demand, node, strategies)
        said: dict[str, Any] = {"preFilter": _status(None), "requests": requests, "bind": demand.bind}
        if alone:
            said |= self._before(cycle, strategies)
        filtered = cycle.filter(on_node)
        said["filter"] = _status(filtered)
        if filtered is not None:
            return said
        said["score"] = cycle.score(on_node)
        got = cycle.reserve()
        said["reserve"] = _status(got if isinstance(got, Refused) else None)
        if cycle.affinity is not None:
            said["affinity"] = _affinity(cycle.affinity)
        if isinstance(got, Refused):
            return said
        uid = pod.metadata.uid
        said["allocation"] = {"cpuset": cpu_list(got.cpus), "numa": _plain(got.zones)} if cycle.allocates else None
        said["annotations"] = self.annotations(pod, cycle, got)
        self.hold(uid, got)
        self.requests[uid] = requests
        return said

    def annotations(self, pod: Pod, cycle: Cycle, got: Allocation) -> dict[str, str]:
        """The status, and the bind policies as they stand on the pod in the end."""
        stated = {RESOURCE_SPEC: spec} if (spec := (pod.metadata.annotations or {}).get(RESOURCE_SPEC)) else {}
        return stated | (
            annotations_for(pod, got, cycle.want.own_bind, required=cycle.want.required) if cycle.allocates else {}
        )

    def after(self) -> dict[str, Any]:
        """What is left and what is held. As upstream has it, what was held once stays listed."""
        free, book = self.numa().free_cpus, self.numa().book
        for numa, amounts_ in book.zones.items():
            self.zones_seen.setdefault(numa, {}).update(dict.fromkeys(amounts_, 0))
        held = [(numa, seen | book.zones.get(numa, {})) for numa, seen in sorted(self.zones_seen.items())]
        left = {"error": text(*free.reasons[0])} if isinstance(free, Refused) else cpu_list(free)
        return {"availableCPUs": left, "numaAllocated": _plain(held)}

    def _before(self, cycle: Cycle, strategies: Strategies) -> dict[str, Any]:
        if isinstance(cycle.policy, Refused) or cycle.is_fractional:
            return {}
        node, options = cycle.node, self.options
        free = node.free_cpus
        said: dict[str, Any] = {
            "policy": cycle.policy,
            "numaTotal": _zones(options.zones),
            "numaAvailable": _plain(sorted(node.free.items())),
            "availableCPUs": {"error": text(*free.reasons[0])} if isinstance(free, Refused) else cpu_list(free),
            "numaStatus": [node.book.use(numa).value for numa in range(len(options.zones))],
        }
        if cycle.policy:
            hints = hints_of(node, cycle.want, cycle.policy, strategies)
            if isinstance(hints, Refused):
                said["hintStatus"] = _status(hints)
            else:
                said["hints"] = {
                    name: [{"mask": numas_of(h.mask or 0), "preferred": h.preferred, "score": h.score} for h in found]
                    for name, found in hints.items()
                }
        return said


def _cycle(given: Mapping[str, Any]) -> dict[str, Any]:
    return _OneNode(given).cycle(msgspec.convert(given["pod"], Pod), alone=True)


def _sequence(given: Mapping[str, Any]) -> dict[str, Any]:
    node, pods = _OneNode(given), msgspec.convert(given["pods"], list[Pod])
    steps = []
    for pod, release in zip(pods, given["releaseAfter"], strict=True):
        step = node.cycle(pod, alone=False)
        if release >= 0 and (name := pods[release].metadata.uid) in node.requests:
            del node.requests[name]
            node.allocations.pop(name, None)
            step["released"] = pods[release].metadata.name
        steps.append(step | node.after())
    return {"steps": steps}


def _status(refused: Refused | None) -> dict[str, Any]:
    if refused is None:
        return {"code": "Success"}
    code = "Error" if refused.error else "UnschedulableAndUnresolvable" if refused.hopeless else "Unschedulable"
    return {"code": code, "reasons": sorted(text(*reason) for reason in refused.reasons)}


def _plain(zones: Iterable[tuple[int, Amounts]]) -> list[dict[str, Any]]:
    return [{"node": numa, "resources": dict(held)} for numa, held in zones]
