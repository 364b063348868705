"""Reconciles settings outside of cgroups: kernel settings, resctrl groups, OOM scores, core scheduling, network shares.

Source: spec/node-agent.md 3, 4.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.tc_class_drops import class_drops
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.core_sched import CoreSchedGroups, CoreSchedUnavailable, KernelCookieApi
from services.node_agent.kernel.ingress_limits import IngressLimits
from services.node_agent.kernel.ingress_shares import IngressShares
from services.node_agent.kernel.node_wide_proc_sys_settings import KernelSettingsWriter
from services.node_agent.kernel.oom_score_writer import OomScores
from services.node_agent.kernel.resctrl_groups import ResctrlGroups
from services.node_agent.kernel.terway_qos import TerwayFiles
from services.node_agent.kernel.traffic_control import TrafficControl
from services.node_agent.qos_manager.strategies import kernel_settings, network_qos
from services.node_agent.runtime_hooks.core_sched_rule import CoreRule
from services.node_agent.runtime_hooks.group_identity import Identities
from shared.domain.slo_defaults import NodeSloSpec
from shared.kube.node import Node
from shared.kube.quantity import nanos, value

log = logging.getLogger(__name__)


class NonCgroupReconciler:
    """Writes settings that differ, and restores at the end those that docs/node-agent.md names.

    Attributes:
        resctrl: the resctrl groups.
    """

    def __init__(
        self,
        proc: Path,
        sys: Path,
        procs_root: Path,
        state_dir: Path | None,
        gates: Mapping[str, bool],
        clock_ns: Callable[[], int],
        terway: Path | None = None,
    ) -> None:
        processes = Processes(procs_root, proc)
        self._gates = gates
        self._settings = KernelSettingsWriter(proc, sys, state_dir)
        self.resctrl = ResctrlGroups(sys, processes, clock_ns)
        self._scores = OomScores(processes)
        self._cookies = CoreSchedGroups(processes, _cookies() if gates["CoreSched"] else None)
        self._terway = TerwayFiles(terway) if terway is not None and gates["TerwayQoS"] else None
        self._traffic = TrafficControl(proc, processes) if gates["TCNetworkQoS"] else None
        self._ingress_limits = IngressLimits(processes, clock_ns)
        self._ingress_shares = IngressShares(proc, processes)

    def reconcile(
        self,
        spec: NodeSloSpec,
        node: Node | None,
        pods: Iterable[PodCgroups],
        present: Collection[str] = frozenset(),
    ) -> None:
        """Applies all settings of a NodeSLO.

        Args:
            spec: merged with the defaults.
            present: uids of all pods with a cgroup, also of those that the agent has not received.
        """
        pod_cgroups = list(pods)
        if self._gates["SystemConfig"] and spec.system_strategy is not None and node is not None:
            capacity = value(nanos((node.status.capacity or {}).get("memory", "0")))
            for file, text in kernel_settings.desired_settings(spec.system_strategy, capacity).items():
                self._settings.put(file, text)
            self._settings.features(spec.system_strategy.sched_features or {})
        rule = CoreRule.of(spec.resource_qos_strategy)
        if self._gates["GroupIdentity"] and Identities.of(spec.resource_qos_strategy).enabled:
            self._settings.enable_group_identity()
        if self._gates["CoreSched"]:
            if rule.enabled:
                self._settings.enable_core_scheduling()
            self._cookies.reconcile(rule, pod_cgroups)
        if self._gates["RdtResctrl"] or self._gates["Resctrl"]:
            self.resctrl.reconcile(spec, pod_cgroups, self._gates, present)
        if self._gates["OOMScoreAdj"]:
            self._scores.reconcile(pod_cgroups)
        if self._terway is not None:
            self._terway.reconcile(spec, pod_cgroups)
        if self._traffic is not None:
            self._traffic.reconcile(spec, pod_cgroups)
            self._ingress_shares.reconcile(spec, pod_cgroups)
            self._ingress_limits.reconcile(pod_cgroups if network_qos.policy(spec) == network_qos.TC else ())

    def class_ids(self, pods: Iterable[PodCgroups]) -> Iterator[tuple[str, int]]:
        """Yields (cgroup, desired `net_cls.classid`) of labelled pods and their containers, while tc is in use."""
        if self._traffic is None or not self._traffic.interface:
            return
        for each in pods:
            minor = self._traffic.minor_of(each.pod)
            if minor is not None:
                for folder in (each.folder, *each.containers.values()):
                    yield folder, network_qos.class_id(minor)

    def dropped_packets(self, pods: Iterable[PodCgroups]) -> dict[str, int]:
        """Returns uid -> packets dropped in the pod's traffic class; empty while tc is not in use."""
        if self._traffic is None or not self._traffic.interface:
            return {}
        drops = class_drops(self._traffic.interface)
        minors = {each.pod.metadata.uid: self._traffic.minor_of(each.pod) for each in pods}
        return {uid: drops[minor] for uid, minor in minors.items() if minor is not None and minor in drops}

    def gauges(self) -> Iterator[Gauge]:
        """Yields gauges of core scheduling."""
        return self._cookies.gauges()

    def release(self) -> None:
        """Restores the original settings."""
        self._cookies.release()
        if self._terway is not None:
            self._terway.release()
        if self._traffic is not None:
            self._traffic.release()
            self._ingress_shares.release()
            self._ingress_limits.release()
        self._settings.release()


def _cookies() -> KernelCookieApi | None:
    try:
        return KernelCookieApi()
    except CoreSchedUnavailable as error:
        log.warning("core scheduling is not used", extra={"why": str(error)})
        return None
