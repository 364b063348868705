"""The `device` cases: requests of pods, and pods against one node with devices.

Node, Device, templates and pods are events. Filter results, raw scores and allocations are those of the cycle that
tries the pod; what it got is read from the annotation of its placement, and what is left from the node once the pod is
observed there. Hints and trials below given NUMA nodes, which no decision of this plugin alone records, are read from
the very objects that the cycle works with.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from cli.parity.runners.scheduler.device_reservations import NodeWithReservations
from cli.parity.runners.scheduler.device_words import SUCCESS, free_amounts, plain, status_of
from cli.parity.runners.scheduler.evaluation import agree
from cli.parity.runners.scheduler.recorded_cluster import Cluster, Tried
from services.scheduler.plugins.device_share.allocation_annotation import allocation_of, annotation_for
from services.scheduler.plugins.device_share.device_usage import Allocation, DeviceUsage
from services.scheduler.plugins.device_share.filter_score_reserve_on_one_node import DeviceAdmission, matched_templates
from services.scheduler.plugins.device_share.node_cache import DeviceCache
from services.scheduler.plugins.device_share.numa_hints import device_hints
from services.scheduler.plugins.device_share.plugin import DeviceShare
from services.scheduler.plugins.device_share.pod_device_requests import DeviceRequests, RequestedDevices
from services.scheduler.plugins.helper.rejections import Rejection
from shared.kube.gpu_templates import CONFIG_MAP, KEY
from shared.kube.pod import Pod
from shared.kube.quantity import amounts
from shared.kube.resource_names import DEVICES
from shared.kube.system_annotations import DEVICE_ALLOCATED

NAME = "DeviceShare"
_NODE: Mapping[str, Any] = {"metadata": {"name": "node-1"}}

Json = Mapping[str, Any]


def answer(op: str, given: Json) -> dict[str, Any]:
    """Answers one case in the shape of its output."""
    cluster = DeviceCluster(given)
    return cluster.request(given["pod"]) if op == "request" else cluster.cycle(given)


class DeviceCluster(Cluster):
    """One node with devices, the pods that run there, and the pod that comes."""

    def __init__(self, given: Json) -> None:
        super().__init__((NAME,), {NAME: given.get("args", {})})
        plugin = self.plugins[NAME]
        cache = self.engine.cache.plugin_caches[plugin]
        assert isinstance(plugin, DeviceShare), "the plugin of that name"
        assert isinstance(cache, DeviceCache), "the cache of that plugin"
        self._plugin, self._cache = plugin, cache
        self._given = given
        if "device" in given:
            self.observe_object(DEVICES, given["device"])
        if "templates" in given:
            namespace, _, name = CONFIG_MAP.partition("/")
            metadata = {"namespace": namespace, "name": name}
            data = {KEY: yaml.safe_dump(given["templates"])}
            self.observe_object("configmaps", {"metadata": metadata, "data": data})
        self.observe_node(given.get("node", _NODE))
        for pod in msgspec.convert(given.get("runningPods", []), list[Pod]):
            self.observe_pod(pod)
        self.engine.cache.settle()

    @property
    def _row(self) -> int:
        return self.engine.cache.table.rows[self._given.get("node", _NODE)["metadata"]["name"]]

    def request(self, raw: Json) -> dict[str, Any]:
        """Reads the requests of a pod."""
        with self.waiting(raw) as tried:
            requested = self._plugin.requests.of(tried.evaluation.pod_class)
            if requested is None:
                return {"status": SUCCESS, "skip": True, "requests": {}}
            status = self._status_of_class(tried, requested)
            if status != SUCCESS:
                return {"status": status}
            assert isinstance(requested, RequestedDevices), "valid requests"
            return {"status": SUCCESS, "skip": False, **self._requests(requested.requests)}

    def cycle(self, given: Json) -> dict[str, Any]:
        """Tries one pod on the node."""
        with self.waiting(given["pod"]) as tried:
            requested = self._plugin.requests.of(tried.evaluation.pod_class)
            if requested is None:
                return {"preFilter": {"code": "Skip"}}
            status = self._status_of_class(tried, requested)
            if status != SUCCESS:
                return {"preFilter": status}
            assert isinstance(requested, RequestedDevices), "valid requests"
            node = self._cache.state(self._row).node
            templates = matched_templates(
                requested.requests, self._plugin.settings, self.engine.cache.cluster_objects.gpu_templates
            )
            admission = DeviceAdmission(requested.requests, node, self._plugin.settings, templates)
            found = {"preFilter": SUCCESS, **self._requests(requested.requests)}
            if "reservations" in given:
                return found | self._with_reservations(requested.requests)
            found |= self._before(admission)
            if "numaAffinity" in given:
                return found | self._within(tried, admission, frozenset(given["numaAffinity"]))
            return found | self._tried(tried)

    def _status_of_class(self, tried: Tried, requested: RequestedDevices | Rejection) -> dict[str, Any]:
        """The result of PreFilter: a rejection that every node has."""
        rejection = requested if isinstance(requested, Rejection) else None
        if isinstance(requested, RequestedDevices):
            templates = matched_templates(
                requested.requests, self._plugin.settings, self.engine.cache.cluster_objects.gpu_templates
            )
            if templates is not None and not templates:
                result = self._transaction_result(tried)
                rejection = self._plugin.rejections[result]
        if rejection is None:
            return SUCCESS
        (refusal,) = tried.evaluation.refusals(self._plugin).values()
        agree("reasons", status_of(rejection)["reasons"], refusal.reasons)
        return status_of(rejection)

    def _transaction_result(self, tried: Tried) -> int:
        state = tried.evaluation.transaction.plugin_states[self._plugin]
        return state.filter_at(tried.evaluation.pod_class, self._row)

    def _requests(self, requests: DeviceRequests) -> dict[str, Any]:
        found: dict[str, Any] = {"requests": {type_: dict(each) for type_, each in requests.of_type.items()}}
        if (gpu := requests.gpu) is not None:
            found["gpu"] = {"count": gpu.number, "perGPU": dict(gpu.each), "shared": gpu.shared}
            objects = self.engine.cache.cluster_objects
            templates = matched_templates(requests, self._plugin.settings, objects.gpu_templates)
            if templates is not None:
                found["gpu"]["templates"] = {kind: list(names) for kind, names in templates.items()}
        return found

    def _before(self, admission: DeviceAdmission) -> dict[str, Any]:
        devices, usage = admission.node.devices, admission.node.usage
        found: dict[str, Any] = {}
        if devices.known:
            found["free"] = self._free_less_than_reported(usage)
        if not self._plugin.settings.aligns or not devices.known:
            return found | {"hints": None}
        hints = device_hints(admission)
        if isinstance(hints, Rejection):
            return found | {"hintStatus": status_of(hints)}
        plain = {
            type_: [{"mask": list(hint.numas), "preferred": hint.preferred, "score": hint.score} for hint in of_type]
            for type_, of_type in hints.items()
        }
        return found | {"hints": plain}

    def _free_less_than_reported(self, usage: DeviceUsage) -> dict[str, dict[str, dict[str, int]]]:
        reported: dict[str, dict[str, Any]] = {}
        for each in self._given["device"]["spec"]["devices"]:
            reported.setdefault(each["type"], {})[str(each["minor"])] = amounts(each.get("resources", {}))
        left = {
            type_: {minor: free for minor, free in of_type.items() if free != reported[type_][minor]}
            for type_, of_type in free_amounts(self._cache.devices(self._row), usage).items()
        }
        return {type_: minors for type_, minors in left.items() if minors}

    def _with_reservations(self, requests: DeviceRequests) -> dict[str, Any]:
        devices, running = self._cache.devices(self._row), self._cache.allocations(self._row)
        node = NodeWithReservations(self._given, devices, requests, running, self._plugin.settings)
        return {"free": self._free_less_than_reported(node.usage), **node.answer()}

    def _tried(self, tried: Tried) -> dict[str, Any]:
        """Describes the cycle that tried the pod."""
        result = self._transaction_result(tried)
        if result:
            refusal = tried.evaluation.refusals(self._plugin)[self.engine.cache.table.names[self._row]]
            status = status_of(self._plugin.rejections[result])
            agree("reasons", status["reasons"], refusal.reasons)
            return {"filter": status}
        state = tried.evaluation.transaction.plugin_states[self._plugin]
        found: dict[str, Any] = {"filter": SUCCESS, "score": state.score_at(tried.evaluation.pod_class, self._row)}
        placed = tried.decided.placed
        if placed is None:
            rejection = self._plugin.rejections[int(tried.decided.evaluation.result[self._row])]
            return found | {"reserve": status_of(rejection)}
        found["reserve"] = SUCCESS
        if DEVICE_ALLOCATED not in placed.annotations:
            return found | {"allocation": None}
        annotation = placed.annotations[DEVICE_ALLOCATED]
        self._bind(tried.pod, annotation)
        return found | self._allocated(annotation, self._cache.state(self._row).node.usage)

    def _within(self, tried: Tried, admission: DeviceAdmission, numas: frozenset[int]) -> dict[str, Any]:
        """Describes the pod below NUMA nodes that are given."""
        aligned = numas if self._plugin.settings.aligns else None
        found: dict[str, Any] = {
            "numaAllocate": status_of(admission.try_within(aligned) if aligned is not None else None)
        }
        if found["numaAllocate"] != SUCCESS:
            return found
        found["filter"] = status_of(admission.unfit)
        if found["filter"] != SUCCESS:
            return found
        score = admission.score_within(numas)
        found["score"] = status_of(score) if isinstance(score, Rejection) else score
        allocation = admission.reserve(aligned)
        if isinstance(allocation, Rejection):
            return found | {"reserve": status_of(allocation)}
        found["reserve"] = SUCCESS
        if not admission.node.devices.known:
            return found | {"allocation": None}
        annotation = annotation_for(tried.pod, allocation, self._cache.devices(self._row).ids)
        self._bind(tried.pod, annotation)
        return found | self._allocated(annotation, self._cache.state(self._row).node.usage)

    def _bind(self, pod: Pod, annotation: str) -> None:
        """Observes the pod on its node, with its annotation."""
        notes = {**(pod.metadata.annotations or {}), DEVICE_ALLOCATED: annotation}
        metadata = msgspec.structs.replace(pod.metadata, annotations=notes)
        spec = msgspec.structs.replace(pod.spec, node_name=self.engine.cache.table.names[self._row])
        self.observe_pod(msgspec.structs.replace(pod, metadata=metadata, spec=spec))
        self.engine.cache.settle()

    def _allocated(self, annotation: str, usage: DeviceUsage) -> dict[str, Any]:
        chosen = allocation_in_order(annotation)
        after = free_amounts(self._cache.devices(self._row), usage)
        left: dict[str, dict[str, Any]] = {}
        for device in chosen:
            left.setdefault(device.type, {})[str(device.minor)] = after[device.type][str(device.minor)]
        return {"allocation": plain(chosen), "annotation": annotation, "freeAfter": left}


def allocation_in_order(annotation: str) -> Allocation:
    """Returns the devices of an annotation, in order of choice."""
    return allocation_of({DEVICE_ALLOCATED: annotation})
