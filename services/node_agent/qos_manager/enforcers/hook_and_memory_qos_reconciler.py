"""Reconciles cgroup values that change only with their inputs: memory QoS, and the values of the runtime hooks.

Source: spec/node-agent.md 3.5, 4.2-4.6, 4.10.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from services.node_agent.cgroup import host_application_paths
from services.node_agent.cgroup.executor import CgroupValue, Executor
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.qos_manager.enforcers.hook_audit import HookAudit
from services.node_agent.qos_manager.enforcers.hook_value_files import values_of_cgroup
from services.node_agent.qos_manager.strategies import memory_qos
from services.node_agent.runtime_hooks import core_sched_rule, cpuset
from services.node_agent.runtime_hooks.cgroup_hooks import (
    Computed,
    HookedContainer,
    container_values,
    pod_values,
    without_identity,
)
from services.node_agent.runtime_hooks.hook_rules import HookRules
from services.node_agent.runtime_hooks.hook_values import HookValues
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

    def __init__(self, executor: Executor, gates: Mapping[str, bool], page: int, audit: HookAudit) -> None:
        self._audit = audit
        self._executor = executor
        self._gates = gates
        self._page = page
        self._identities_used = False
        self._levels: Levels = ()
        self._logged: set[str] = set()

    def reconcile(
        self,
        spec: NodeSloSpec,
        rules: HookRules,
        node: Node | None,
        folders: KubepodsFolders,
        pods: Sequence[PodCgroups],
    ) -> None:
        """Computes the desired values and writes them.

        Args:
            spec: merged with the defaults.
        """
        qos = spec.resource_qos_strategy
        assert qos is not None, "merged with the defaults, so present"
        kube: list[CgroupValue] = []
        levels: Levels = (kube, [], [])
        identities = self._identities(rules, folders, kube)
        self._hooks(rules, pods, levels, identities=identities)
        if self._gates["CoreSched"]:
            rule = core_sched_rule.CoreRule.of(qos)
            kube += [
                CgroupValue("cpu.idle", folder, str(rule.idle()[name]))
                for name, folder in folders.items()
                if rule.enabled
            ]
        self._hosts(spec, rules, folders, kube)
        if self._gates["CgroupReconcile"] and node is not None:
            self._memory(qos, node, folders, pods, levels)
        self._levels = levels
        # A run that is killed between the first value written and the end of its cycle must have left the record.
        self._audit.flush()
        self.reconcile_again()

    def reconcile_again(self) -> None:
        """Writes the values that were computed last, where they differ."""
        self._executor.update_levels(self._levels)

    def _identities(self, rules: HookRules, folders: KubepodsFolders, kube: list[CgroupValue]) -> bool:
        """Adds the identities of the cgroups that hold pods; reports whether this node has identities."""
        enabled = bool(rules.identities.enabled)
        if "GroupIdentity" not in rules.gates or not (enabled or self._identities_used):
            return False  # never enabled by a NodeSLO, so the values may belong to somebody else
        if not self._executor.supports("cpu.bvt_warp_ns", folders.guaranteed):
            return False
        self._identities_used = enabled
        kube += [
            CgroupValue("cpu.bvt_warp_ns", folder, str(rules.identities.of_folder(name)))
            for name, folder in folders.items()
        ]
        return True

    def _hooks(self, rules: HookRules, pods: Iterable[PodCgroups], levels: Levels, *, identities: bool) -> None:
        """Adds the values of all hooks, of pods and of their containers that are known by name."""
        for each in pods:
            values = self._in_force(pod_values(each.pod, rules), identities=identities).values
            levels[1].extend(values_of_cgroup(each.folder, values))
            named = {cid: name for name, cid in each.node_pod.ids.items()}
            for cid, folder in each.containers.items():
                if cid in named:
                    computed = container_values(each.pod, HookedContainer(named[cid]), rules)
                    computed = self._in_force(computed, identities=identities)
                    self._audit.look(each, named[cid], computed)
                    values_of = computed.values
                else:
                    values_of = HookValues(bvt=values.bvt)
                levels[2].extend(values_of_cgroup(folder, values_of))

    def _in_force(self, computed: Computed, *, identities: bool) -> Computed:
        for failure in computed.failures:
            self._warn_once(failure.reason)
        return computed if identities else without_identity(computed)

    def _hosts(self, spec: NodeSloSpec, rules: HookRules, folders: KubepodsFolders, kube: list[CgroupValue]) -> None:
        """Adds the values of host applications: the identity of their class, and for LS the CPUs of all share pools.

        Source: spec/node-agent.md 3.11.
        """
        identities = "GroupIdentity" in rules.gates and self._identities_used
        cpus = ""
        if "CPUSetAllocator" in rules.gates and rules.cpus is not None:
            cpus = cpuset.shared_cpus(rules.cpus)
        for app in spec.host_applications:
            folder = host_application_paths.cgroup_of(app, folders)
            if folder is None:
                continue
            qos = QoS(app.qos) if app.qos in set(QoS) else QoS.NONE
            if identities:
                kube.append(CgroupValue("cpu.bvt_warp_ns", folder, str(rules.identities.of_class(qos) or 0)))
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


def _memory_values(folder: str, values: Mapping[str, int]) -> Iterable[CgroupValue]:
    for knob, size in values.items():
        yield CgroupValue(knob, folder, str(size))
