"""The `numa` cases: the offer of a node, merging of hints, and pods against one node.

Node, NodeResourceTopology and pods are events. Filter results, scores and allocations are those of the cycle that
tries the pod; what it got is read from the annotations of its placement, and in a sequence from the pod as the cluster
shows it once it is bound. Steps between, which no decision records (hints, the affinity), are read from the very
objects that the cycle worked with.

A terminated pod holds nothing and still counts in the amounts of the recorder's node, which an API server shows to no
scheduler; here it is a running pod without an allocation. `maxRefCount` is no setting of either scheduler: it is given
to the plugin's account.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cli.parity.runners.scheduler import topology_manager
from cli.parity.runners.scheduler.evaluation import agree
from cli.parity.runners.scheduler.reason_words import upstream_text
from cli.parity.runners.scheduler.recorded_cluster import Cluster, Tried
from services.scheduler.plugins.helper.rejections import Rejection
from services.scheduler.plugins.node_numa_resource.allocation_annotations import allocation_of
from services.scheduler.plugins.node_numa_resource.choose_cpus_and_zones import NumaNode
from services.scheduler.plugins.node_numa_resource.filter_score_reserve_on_one_node import NodeAdmission
from services.scheduler.plugins.node_numa_resource.node_cache import NumaCache
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import NodeOptions, Zone
from services.scheduler.plugins.node_numa_resource.node_usage import Amounts
from services.scheduler.plugins.node_numa_resource.plugin import NodeNUMAResource
from services.scheduler.plugins.node_numa_resource.pod_requirements import NAME
from services.scheduler.plugins.node_numa_resource.topology_hints import hints_of
from services.scheduler.plugins.node_numa_resource.topology_manager import numas_of
from services.scheduler.plugins.registry import text
from shared.domain.cpu_set import cpu_list
from shared.domain.pod_annotations import RESOURCE_SPEC
from shared.events.scheduling import PodPlaced
from shared.kube.pod import ENDED_PHASES, Pod
from shared.kube.resource_names import NODE_TOPOLOGIES
from shared.kube.system_annotations import RESOURCE_STATUS

_SUCCESS = {"code": "Success"}


def answer(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    if op == "options":
        return _options(NumaCluster(given).node.options)
    if op == "merge":
        return topology_manager.merged(given)
    cluster = NumaCluster(given)
    return cluster.cycle(given["pod"]) if op == "cycle" else cluster.sequence(given["pods"], given["releaseAfter"])


class NumaCluster(Cluster):
    """One node, the pods that run there, and the pods that come."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__((NAME,), {NAME: given.get("args", {})})
        cache = self.engine.cache
        plugin = self.plugins[NAME]
        account = cache.plugin_caches[plugin]
        assert isinstance(plugin, NodeNUMAResource), "the plugin of that name"
        assert isinstance(account, NumaCache), "the account of that plugin"
        self._plugin, self._account = plugin, account
        account.max_pods = given.get("maxRefCount", 1)
        if topology := given.get("nodeResourceTopology"):
            self.observe_object(NODE_TOPOLOGIES, topology)
        self.observe_node(given["node"])
        self._name: str = given["node"]["metadata"]["name"]
        self._now_ns = 0
        for pod in msgspec.convert(given.get("runningPods", []), list[Pod]):
            self.observe_pod(_without_allocation(pod) if pod.status.phase in ENDED_PHASES else pod, self._tick())

    @property
    def node(self) -> NumaNode:
        """The node as pods meet it now."""
        self.engine.cache.settle()
        return self._account.state(self._row).node

    @property
    def _row(self) -> int:
        return self.engine.cache.table.rows[self._name]

    def _tick(self) -> int:
        """Returns the next instant: allocations are summed up in the order of their times."""
        self._now_ns += 1
        return self._now_ns

    def cycle(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """Tries one pod on the node, and describes the state that it meets."""
        with self.waiting(raw, self._tick()) as tried:
            return self._tried(tried, alone=True)

    def sequence(self, raws: Iterable[Mapping[str, Any]], releases: Iterable[int]) -> dict[str, Any]:
        """Tries pods one after another; each that is placed is bound, until it is deleted."""
        steps: list[dict[str, Any]] = []
        bound: dict[int, Pod] = {}
        listed: dict[int, dict[str, int]] = {}
        for number, (raw, release) in enumerate(zip(raws, releases, strict=True)):
            tried = self.arrive(raw, self._tick())
            step = self._tried(tried, alone=False)
            if step.get("reserve") == _SUCCESS:
                bound[number] = self._bind(tried.pod)
            else:  # found no node, or requests nothing: the recorder places no such pod
                self.delete_pod(tried.pod)
            if release in bound:
                released = bound.pop(release)
                self.delete_pod(released)
                step["released"] = released.metadata.name
            steps.append(step | self._left(listed))
        return {"steps": steps}

    def _bind(self, pod: Pod) -> Pod:
        """Folds the cycle's placement, and observes the pod on its node, with its annotations."""
        events = self.engine.decide(self._now_ns, 1)
        placed = next(event for event in events if isinstance(event, PodPlaced))
        before = self.node
        notes = {**(pod.metadata.annotations or {}), **placed.annotations}
        on_node = msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(pod.metadata, annotations=notes),
            spec=msgspec.structs.replace(pod.spec, node_name=placed.node),
        )
        self.observe_pod(on_node, self._now_ns)
        agree("held before and after the binding", before.usage.zones, self.node.usage.zones)
        agree("CPUs before and after the binding", before.usage.cpus.allocated, self.node.usage.cpus.allocated)
        return on_node

    def _tried(self, tried: Tried, *, alone: bool) -> dict[str, Any]:
        pod, evaluation, decided = tried
        plugin = self._plugin
        class_requirements, refusals = plugin.requirements.of(evaluation.pod_class), evaluation.refusals(plugin)
        if class_requirements is None:
            return {"preFilter": {"code": "Skip"}}
        if isinstance(class_requirements, Rejection):
            agree("reasons", _status(class_requirements)["reasons"], refusals[self._name].reasons)
            return {"preFilter": _status(class_requirements)}
        requirements, admission = (
            class_requirements.requirements,
            self._account.state(self._row).admission(class_requirements, plugin.args.strategies),
        )
        found: dict[str, Any] = {
            "preFilter": _SUCCESS,
            "requests": dict(requirements.requests),
            "bind": requirements.bind,
        }
        if alone:
            found |= self._before(admission)
        if self._name in refusals:
            return found | {"filter": refusals[self._name].status()}
        score = evaluation.scores(evaluation.evaluate((), (plugin,)))[NAME][self._name]
        found |= {"filter": _SUCCESS, "score": score, "reserve": _SUCCESS}
        if decided.placed is None:
            found["reserve"] = evaluation.refusal(plugin, int(decided.evaluation.result[self._row])).status()
        if admission.affinity is not None:
            found["affinity"] = topology_manager.affinity(admission.affinity)
        if decided.placed is None:
            return found
        notes, given = pod.metadata.annotations or {}, decided.placed.annotations
        allocation = allocation_of({**notes, **given}) if RESOURCE_STATUS in given else None
        own = {RESOURCE_SPEC: notes[RESOURCE_SPEC]} if notes.get(RESOURCE_SPEC) else {}
        return found | {
            "allocation": None
            if allocation is None
            else {"cpuset": cpu_list(allocation.cpus), "numa": _plain(allocation.zones)},
            "annotations": own | given,
        }

    def _before(self, admission: NodeAdmission) -> dict[str, Any]:
        """Describes the state before the pod, and its hints."""
        if isinstance(admission.policy, Rejection) or admission.is_fractional:
            return {}
        node = admission.node
        zones = node.options.zones
        found: dict[str, Any] = {
            "policy": admission.policy,
            "numaTotal": _zones(zones),
            "numaAvailable": _plain(sorted(node.free.items())),
            "availableCPUs": _free(node),
            "numaStatus": [node.usage.use(numa).value for numa in range(len(zones))],
        }
        if admission.policy:
            hints = hints_of(node, admission.request, admission.policy, admission.strategies)
            if isinstance(hints, Rejection):
                return found | {"hintStatus": _status(hints)}
            found["hints"] = {
                name: [{"mask": numas_of(h.mask or 0), "preferred": h.preferred, "score": h.score} for h in of_resource]
                for name, of_resource in hints.items()
            }
        return found

    def _left(self, listed: dict[int, dict[str, int]]) -> dict[str, Any]:
        """Lists free CPUs and held amounts after a step. As in upstream, an amount that was held once stays, with 0."""
        zones = self.node.usage.zones
        for numa, amounts in zones.items():
            listed.setdefault(numa, {}).update(dict.fromkeys(amounts, 0))
        allocated = [(numa, once | zones.get(numa, {})) for numa, once in sorted(listed.items())]
        return {"availableCPUs": _free(self.node), "numaAllocated": _plain(allocated)}


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


def _without_allocation(pod: Pod) -> Pod:
    """Returns a terminated pod as one that runs and holds no CPUs and zones."""
    notes = {name: note for name, note in (pod.metadata.annotations or {}).items() if name != RESOURCE_STATUS}
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=notes or None),
        status=msgspec.structs.replace(pod.status, phase="Running"),
    )


def _free(node: NumaNode) -> str | dict[str, str]:
    free = node.free_cpus
    return {"error": text(*free.reasons[0])} if isinstance(free, Rejection) else cpu_list(free)


def _status(rejection: Rejection) -> dict[str, Any]:
    code = "Error" if rejection.error else "UnschedulableAndUnresolvable" if rejection.unresolvable else "Unschedulable"
    return {"code": code, "reasons": sorted(upstream_text(reason) for reason in rejection.reasons)}


def _zones(zones: Iterable[Zone]) -> list[dict[str, Any]]:
    return [{"node": zone.numa, "resources": dict(zone.total)} for zone in zones]


def _plain(zones: Iterable[tuple[int, Amounts]]) -> list[dict[str, Any]]:
    return [{"node": numa, "resources": dict(allocated)} for numa, allocated in zones]
