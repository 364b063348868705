"""Reconciles cgroup values that change only with their inputs: memory QoS, and the values of the runtime hooks.

Source: spec/node-agent.md 3.5, 4.2-4.6, 4.10.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from services.node_agent.cgroup import host_application_paths
from services.node_agent.cgroup.executor import CgroupValue, Executor
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.qos_manager.strategies import memory_qos
from services.node_agent.runtime_hooks import batch_resource, core_sched_rule, cpu_normalization, cpuset
from services.node_agent.runtime_hooks.batch_resource import BatchRule, Values
from services.node_agent.runtime_hooks.cpu_normalization import BadRatio, Normalization
from services.node_agent.runtime_hooks.group_identity import BadCpuQos, Identities
from shared.domain.qos import QoS
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.node import Node
from shared.kube.quantity import nanos, value
from shared.kube.slo_config import ResourceQos

log = logging.getLogger(__name__)

Levels = Sequence[list[CgroupValue]]
"""Kube-QoS folders, pods, containers."""


class KubepodsFolders(NamedTuple):
    """The cgroups that hold pods, relative to a controller's root."""

    guaranteed: str
    burstable: str
    best_effort: str

    def items(self) -> tuple[tuple[str, str], ...]:
        """(Kubernetes class, folder)."""
        return (("Guaranteed", self.guaranteed), ("Burstable", self.burstable), ("BestEffort", self.best_effort))


class CgroupReconciler:
    """Computes the values of all levels, and writes those that differ."""

    def __init__(self, executor: Executor, gates: Mapping[str, bool], page: int) -> None:
        self._executor = executor
        self._gates = gates
        self._page = page
        self._ratio = Normalization()
        self._identities_used = False
        self._levels: Levels = ()
        self._logged: set[str] = set()

    def reconcile(
        self,
        spec: NodeSloSpec,
        node: Node | None,
        topology: Mapping[str, str] | None,
        folders: KubepodsFolders,
        pods: Sequence[PodCgroups],
    ) -> None:
        """Computes the desired values and writes them.

        Args:
            spec: merged with the defaults.
        """
        qos = spec.resource_qos_strategy
        assert qos is not None, "merged with the defaults, so present"
        self._take_ratio(node)
        kube: list[CgroupValue] = []
        of_pods: list[CgroupValue] = []
        of_containers: list[CgroupValue] = []
        levels = (kube, of_pods, of_containers)
        if self._gates["GroupIdentity"]:
            self._identities(qos, folders, pods, levels)
        if self._gates["CoreSched"]:
            rule = core_sched_rule.CoreRule.of(qos)
            kube += [
                CgroupValue("cpu.idle", folder, str(rule.idle()[name]))
                for name, folder in folders.items()
                if rule.enabled
            ]
        if self._gates["BatchResource"]:
            self._batch(spec, pods, levels)
        if self._gates["CPUNormalization"] and self._ratio.enabled:
            self._normalized(pods, levels)
        if self._gates["CPUSetAllocator"]:
            self._cpus(topology, pods, levels)
        self._hosts(spec, topology, folders, kube)
        if self._gates["CgroupReconcile"] and node is not None:
            self._memory(qos, node, folders, pods, levels)
        self._levels = levels
        self.reconcile_again()

    def reconcile_again(self) -> None:
        """Writes the values that were computed last, where they differ."""
        self._executor.update_levels(self._levels)

    def _take_ratio(self, node: Node | None) -> None:
        annotations = (node.metadata.annotations if node else None) or {}
        try:
            self._ratio = self._ratio.with_annotation(annotations.get(cpu_normalization.ANNOTATION))
        except BadRatio as error:
            self._warn_once(str(error))

    def _identities(
        self, qos: ResourceQos, folders: KubepodsFolders, pods: Iterable[PodCgroups], levels: Levels
    ) -> None:
        rule = Identities.of(qos)
        if not rule.enabled and not self._identities_used:
            return  # never enabled by a NodeSLO, so the values may belong to somebody else
        if not self._executor.supports("cpu.bvt_warp_ns", folders.guaranteed):
            return
        self._identities_used = bool(rule.enabled)
        levels[0].extend(
            CgroupValue("cpu.bvt_warp_ns", folder, str(rule.of_folder(name))) for name, folder in folders.items()
        )
        for each in pods:
            try:
                bvt = str(rule.of_pod(each.pod))
            except BadCpuQos as error:
                self._warn_once(str(error))
                continue
            levels[1].append(CgroupValue("cpu.bvt_warp_ns", each.folder, bvt))
            levels[2].extend(CgroupValue("cpu.bvt_warp_ns", folder, bvt) for folder in each.containers.values())

    def _batch(self, spec: NodeSloSpec, pods: Iterable[PodCgroups], levels: Levels) -> None:
        ratio = self._ratio.ratio if self._gates["CPUNormalization"] else None
        rule = BatchRule(ratio=ratio).with_threshold(spec.resource_used_threshold_with_be)
        for each in pods:
            if not batch_resource.applies(each.pod) or (requests := batch_resource.batch_requests(each.pod)) is None:
                continue
            levels[1].extend(_batch_values(each.folder, batch_resource.pod_values(requests, rule)))
            for name, cid in each.node_pod.ids.items():
                if (batch := requests.get(name)) is not None:
                    values = batch_resource.container_values(batch, rule)
                    levels[2].extend(_batch_values(each.containers[cid], values))

    def _normalized(self, pods: Iterable[PodCgroups], levels: Levels) -> None:
        for each in pods:
            if not cpu_normalization.applies(each.pod):
                continue
            if (quota := cpu_normalization.pod_quota(each.pod, self._ratio)) is not None:
                levels[1].append(CgroupValue("cpu.cfs_quota_us", each.folder, str(quota)))
            for container in each.pod.spec.containers:
                quota, cid = (
                    cpu_normalization.container_quota(container, self._ratio),
                    each.node_pod.ids.get(container.name),
                )
                if quota is not None and cid is not None:
                    levels[2].append(CgroupValue("cpu.cfs_quota_us", each.containers[cid], str(quota)))

    def _cpus(self, topology: Mapping[str, str] | None, pods: Iterable[PodCgroups], levels: Levels) -> None:
        rule = None
        if topology is not None:
            rule = cpuset.CpuRule.of(topology, best_effort_too=self._gates["BECPUManager"])
        for each in pods:
            containers = [each.containers[cid] for cid in each.node_pod.ids.values()]
            if cpus := cpuset.container_cpus(each.pod, rule):
                levels[2].extend(CgroupValue("cpuset.cpus", folder, cpus) for folder in containers)
            if cpuset.unlimited(each.pod):
                levels[1].append(CgroupValue("cpu.cfs_quota_us", each.folder, "-1"))
                levels[2].extend(CgroupValue("cpu.cfs_quota_us", folder, "-1") for folder in containers)

    def _hosts(
        self, spec: NodeSloSpec, topology: Mapping[str, str] | None, folders: KubepodsFolders, kube: list[CgroupValue]
    ) -> None:
        """Adds the values of host applications: the identity of their class, and for LS the CPUs of all share pools.

        Source: spec/node-agent.md 3.11.
        """
        rule = Identities.of(spec.resource_qos_strategy)
        identities = self._gates["GroupIdentity"] and self._identities_used
        cpus = ""
        if self._gates["CPUSetAllocator"] and topology is not None:
            cpus = cpuset.shared_cpus(cpuset.CpuRule.of(topology))
        for app in spec.host_applications:
            folder = host_application_paths.cgroup_of(app, folders)
            if folder is None:
                continue
            qos = QoS(app.qos) if app.qos in set(QoS) else QoS.NONE
            if identities:
                kube.append(CgroupValue("cpu.bvt_warp_ns", folder, str(rule.of_class(qos) or 0)))
            if cpus and qos is QoS.LS:
                kube.append(CgroupValue("cpuset.cpus", folder, cpus))

    def _memory(
        self, qos: ResourceQos, node: Node, folders: KubepodsFolders, pods: Sequence[PodCgroups], levels: Levels
    ) -> None:
        allocatable = value(nanos((node.status.allocatable or {}).get("memory", "0")))
        found = memory_qos.desired_values(
            qos, (each.node_pod for each in pods), allocatable, self._page, self._executor.tree.version
        )
        for name, folder in folders.items():
            levels[0].extend(_memory_values(folder, found.kube[name]))
        for each in pods:
            levels[1].extend(_memory_values(each.folder, found.pods.get(each.pod.metadata.uid, {})))
            for cid in each.node_pod.ids.values():
                levels[2].extend(_memory_values(each.containers[cid], found.containers.get(cid, {})))

    def _warn_once(self, text: str) -> None:
        """Logs a warning unless its text was logged before."""
        if text not in self._logged:
            self._logged.add(text)
            log.warning(text)


def _batch_values(folder: str, values: Values) -> Iterable[CgroupValue]:
    yield CgroupValue("cpu.shares", folder, str(values.shares))
    yield CgroupValue("cpu.cfs_quota_us", folder, str(values.quota_us))
    yield CgroupValue("memory.limit_in_bytes", folder, str(values.memory_limit or -1))


def _memory_values(folder: str, values: Mapping[str, int]) -> Iterable[CgroupValue]:
    for knob, size in values.items():
        yield CgroupValue(knob, folder, str(size))
