"""The QoS manager: runs the strategies after each collection cycle, and restores at the end what they changed.

It works from the newest NodeSLO and pods received, so also without the bus. Source: spec/node-agent.md 3, 4.
"""

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup.executor import CgroupTree, CgroupValue, Executor
from services.node_agent.cgroup.kubepods_layout import Hierarchy, KubepodsLayout
from services.node_agent.cgroup.original_values import OriginalValues
from services.node_agent.collectors.interference_counters import InterferenceCounters
from services.node_agent.collectors.interference_gauges import Gauge, InterferenceGauges
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.kernel.cgroup_processes import Processes
from services.node_agent.kernel.non_cgroup_reconciler import NonCgroupReconciler
from services.node_agent.prometheus import koordlet_series
from services.node_agent.prometheus.durations import Histogram
from services.node_agent.qos_manager.enforcers.block_io import BlockIoEnforcer
from services.node_agent.qos_manager.enforcers.cpu_burst import CpuBurstEnforcer
from services.node_agent.qos_manager.enforcers.cpu_suppress import BestEffortCgroups, CpuSuppressEnforcer
from services.node_agent.qos_manager.enforcers.eviction import EvictionEnforcer
from services.node_agent.qos_manager.enforcers.hook_and_memory_qos_reconciler import CgroupReconciler, KubepodsFolders
from services.node_agent.qos_manager.enforcers.hook_audit import NO_RUNTIME, HookAudit
from services.node_agent.qos_manager.enforcers.hook_value_files import PodCgroupWriter
from services.node_agent.qos_manager.enforcers.interference_detector import InterferenceDetector
from services.node_agent.qos_manager.host_paths import HostPaths
from services.node_agent.qos_manager.pod_cgroup_lookup import PodCgroupLookup, best_effort_cgroups
from services.node_agent.qos_manager.strategies import cpu_burst
from services.node_agent.qos_manager.strategies.cpu_burst import NodeState
from services.node_agent.qos_manager.strategies.cpu_suppress import HostApp, SuppressInputs, Usage, best_effort_of
from services.node_agent.qos_manager.usage_history import BestEffortLimits, UsageHistory
from services.node_agent.qos_plugins.plugin_interface import StrategyInputs
from services.node_agent.qos_plugins.qos_plugins import QosPlugins
from services.node_agent.runtime_hooks.hook_records import HookRecords
from services.node_agent.runtime_hooks.hook_rules import NodeHookRules
from services.node_agent.states_informer.annotations import ReservedCpus
from services.node_agent.states_informer.container_names_from_log_links import started_since
from services.node_agent.states_informer.node_slo import NodeSloInformer
from services.node_agent.states_informer.received_node_pods import NodePodsInformer
from services.node_agent.topology import cpu_topology
from services.node_agent.topology.cpu_model_and_zone_memory import read_hardware
from services.node_agent.topology.topology_reporter import TopologyReporter
from shared.agents.actions import AnyAction
from shared.agents.node_pods import INSTANCE_TYPE, NodePods
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

RECONCILE_INTERVAL_NS = 10 * SECOND
BURST_WINDOW_NS = 5 * SECOND


class EnforcementStatus(NamedTuple):
    """Counts since the start.

    Attributes:
        written, refused: cgroup files written, and writes that the kernel rejected.
        pods: pods of the newest NodePods; None before the first one.
    """

    written: int
    refused: int
    pods: int | None


class QosManager:
    """Runs the strategies of one node.

    Attributes:
        executor: writes cgroups; None before there is a cgroup of pods.
        hook_rules: the rules of the runtime hooks.
        hook_records: whether containers started with their hooks.
        hook_audit: finds those that did not; None before there is a cgroup of pods.
        runtime_side: of the container runtime; set before the first cycle.
        new_pods: writes cgroups of new pods; None before there is a cgroup of pods.
        on_write: called with path and value of each cgroup file that was written; set before the first cycle.
        plugins: of other distributions; likewise.
        resctrl: the resctrl groups.
        state: load of the shared CPUs, from CPU burst's last cycle.
    """

    def __init__(
        self,
        paths: HostPaths,
        slo: NodeSloInformer,
        pods: NodePodsInformer,
        gates: Mapping[str, bool],
        *,
        report_action: Callable[[AnyAction], None],
        clock_ns: Callable[[], int],
        state_dir: Path | None,
        interval_s: float,
        keep_quota: bool = False,
    ) -> None:
        """Prepares the strategies.

        Args:
            keep_quota: pods with CPUs of their own keep their quota.
        """
        self.executor: Executor | None = None
        self.hook_records = HookRecords(state_dir, time.time_ns())
        self.hook_records.load()
        self.hook_audit: HookAudit | None = None
        self.runtime_side = NO_RUNTIME
        self.new_pods: PodCgroupWriter | None = None
        self.on_write: Callable[[str, str], None] | None = None
        self.plugins: QosPlugins | None = None
        self.state = NodeState.UNKNOWN
        self._paths, self._slo, self._pods, self._gates = paths, slo, pods, gates
        self._report_action, self._clock_ns = report_action, clock_ns
        self._state_dir = state_dir
        self._original_values = OriginalValues(state_dir)
        self._original_values.load()
        self._processors = cpu_topology.processors(paths.sys)
        online = frozenset(one.cpu for one in self._processors)
        self.hook_rules = NodeHookRules(slo, pods, gates, online, keep_quota=keep_quota)
        self._spec_of: object = ()
        self._spec = in_force(NodeSloSpec())
        self._lookup = PodCgroupLookup(paths)
        self._reconciled_ns = -RECONCILE_INTERVAL_NS
        self._reconciled_of: tuple[object, ...] = ()
        self._best_effort_uids: tuple[object, frozenset[str]] = (None, frozenset())
        self._history = UsageHistory(max(1, int(interval_s)))
        self._best_effort_limits = BestEffortLimits()
        self._kube: KubepodsFolders | None = None
        self._non_cgroup_files = NonCgroupReconciler(
            paths.proc, paths.sys, paths.root, state_dir, gates, clock_ns, paths.terway
        )
        self.resctrl = self._non_cgroup_files.resctrl
        self._eviction_enforcer = EvictionEnforcer(gates, report_action, clock_ns())
        self._topology_reporter = TopologyReporter(
            paths.proc, paths.sys, paths.kubelet, paths.kubelet_config, gates, report_action
        )

    def run_cycle(
        self, snapshot: UsageSnapshot, hierarchy: Hierarchy, kube: KubepodsLayout | None, folders: Mapping[str, str]
    ) -> None:
        """Runs all strategies after a collection cycle.

        Args:
            kube: the layout of pods; None while there are none.
            folders: uid -> folder of each pod, below `hierarchy`'s.
        """
        self._history.record(snapshot, with_pods=self._keeps_pods)
        if self._pods.in_force is not None:
            self._topology_reporter.run_cycle(self._pods.in_force, self._clock_ns())
        if kube is None or hierarchy.listed is None:
            return
        if self._slo.in_force is not self._spec_of:
            self._spec_of, self._spec = self._slo.in_force, in_force(self._slo.spec or NodeSloSpec())
        now_ns = self._clock_ns()
        executor = self._begin(hierarchy, kube)
        changed = self._lookup.refresh(
            self._pods.in_force, self._spec_of, folders, executor.tree.version, now_ns, self.plugins
        )
        if self._lookup.removed:
            executor.forget(self._lookup.removed)
        self._suppress(snapshot, now_ns)
        self._burst(now_ns)
        self._evict(snapshot, now_ns)
        self._reconcile(changed=changed, now_ns=now_ns, present=folders.keys())
        self._audit_hooks(folders, changed=changed)
        self._detect(snapshot)
        self._interference_gauges.run_cycle(self._lookup.pods)
        if self.plugins is not None:
            self.plugins.run_cycle(StrategyInputs(snapshot, self._lookup.pods, self._spec, executor.update))

    def _detect(self, snapshot: UsageSnapshot) -> None:
        """Looks for pods that best-effort neighbours slow down."""
        node_pods = self._pods.in_force
        if node_pods is None:
            return
        detector, strategy = self._interference_detector, self._spec.interference
        self._interference_gauges.continuous = bool(strategy.enable)
        labels = node_pods.object.metadata.labels if node_pods.object is not None else None
        node_type = (labels or {}).get(INSTANCE_TYPE, "")
        best_effort = self._best_effort_uids_of(node_pods)
        threshold = self._spec.resource_used_threshold_with_be
        suppresses = self._gates["BECPUSuppress"] and threshold is not None and threshold.enable is True
        detector.run_cycle(strategy, self._lookup.pods, best_effort, snapshot, node_type, suppresses=suppresses)

    def _reconcile(self, *, changed: bool, now_ns: int, present: Collection[str]) -> None:
        """Computes values when their inputs have changed, and checks the files at intervals."""
        node_pods = self._pods.in_force
        assert self.executor is not None, "made before any strategy runs"
        if node_pods is None or not (changed or now_ns - self._reconciled_ns >= RECONCILE_INTERVAL_NS):
            return
        self._reconciled_ns = now_ns
        of = (node_pods, self._spec, self.runtime_side.settled())
        if changed or of != self._reconciled_of:
            self._reconciled_of = of
            self._cgroup_reconciler.reconcile(
                self._spec, self.hook_rules.in_force(), node_pods.object, self._folders, self._lookup.pods
            )
        else:
            self._cgroup_reconciler.reconcile_again()
        self._non_cgroup_files.reconcile(self._spec, node_pods.object, self._lookup.pods, present)
        for folder, class_id in self._non_cgroup_files.class_ids(self._lookup.pods):
            self.executor.update(CgroupValue("net_cls.classid", folder, str(class_id)))
        if self._gates["BlkIOReconcile"] and self._spec.resource_qos_strategy is not None:
            self._block_io_enforcer.reconcile(
                self._spec.resource_qos_strategy, self._folders.best_effort, self._lookup.pods, node_pods.claims
            )

    def confirm_hooks(self) -> bool:
        """Records containers that have been repaired meanwhile; reports whether none is left."""
        return self.hook_audit is None or self.hook_audit.confirm()

    def _audit_hooks(self, folders: Mapping[str, str], *, changed: bool) -> None:
        """Records containers that were repaired or have ended, and reports what is new.

        Args:
            folders: as `run_cycle` has them.
        """
        assert self.hook_audit is not None, "made before any strategy runs"
        records, now_ns = self.hook_records, time.time_ns()
        if records.expected:
            self.hook_audit.confirm()
        if changed and self._pods.in_force is not None:
            names, pods = self._lookup.names, self._lookup.pods
            records.keep(names.keys() | {cid for each in pods for cid in each.containers}, now_ns)
            logged = started_since(self._paths.logs, names, records.since_ns, records)
            whole = {uid: os.path.join(self._paths.parent, folder) for uid, folder in folders.items()}  # noqa: PTH118  relative names
            self.hook_audit.ended(logged, pods, self.hook_rules.in_force(), whole)
        records.flush(now_ns)
        for report in records.reports(now_ns):
            self._report_action(report)

    @property
    def enforcement(self) -> EnforcementStatus:
        """Counts of the enforcers."""
        node_pods = self._pods.in_force
        pods = None if node_pods is None else len(node_pods.pods)
        if self.executor is None:
            return EnforcementStatus(0, 0, pods)
        return EnforcementStatus(self.executor.written, self.executor.refused, pods)

    def histograms(self) -> Iterator[Histogram]:
        """Yields durations of cgroup writes."""
        if self.executor is not None:
            yield from self.executor.durations.histograms()

    def gauges(self) -> Iterator[Gauge]:
        """Yields gauges of node objects, cgroups and interference."""
        node_pods, found = self._pods.in_force, self._history.latest
        yield from self.hook_records.gauges()
        if node_pods is not None:
            yield from koordlet_series.node_allocatable(node_pods.object)
            yield from koordlet_series.container_requests(self._lookup.pods)
            yield from koordlet_series.share_pools(node_pods.topology, each_cpu=self._gates["PerCPUMetric"])
            yield from koordlet_series.oom_scores(self._lookup.pods)
            if found is not None:
                yield from koordlet_series.suppress_usage(found, self._best_effort_uids_of(node_pods))
        yield from self._eviction_enforcer.gauges()
        if self.executor is not None:
            if (policy := self._suppress_enforcer.policy) is not None:
                current = self._suppress_enforcer.current(self._folders.best_effort)
                yield from koordlet_series.suppressed(policy, current)
            if (strategy := self._spec.cpu_burst_strategy) is not None and self._gates["CPUBurst"]:
                yield from koordlet_series.scaled_quotas(
                    self.executor, self._burst_enforcer.pods_under_burst(strategy, self._lookup.pods)
                )
            yield from self._interference_gauges.gauges()
            yield from self._interference_detector.gauges()
            yield from self._non_cgroup_files.gauges()

    def release(self) -> None:
        """Restores the original values."""
        if self.executor is None:
            return
        self._suppress_enforcer.release(self._best_effort_cgroups())
        self._non_cgroup_files.release()
        self._block_io_enforcer.release()
        self._interference_gauges.close()
        self._interference_detector.close()
        written = self.executor.restore()
        log.info("cgroups are restored", extra={"written": written})

    @property
    def _folders(self) -> KubepodsFolders:
        assert self._kube is not None, "set before any strategy runs"
        return self._kube

    def _begin(self, hierarchy: Hierarchy, kube: KubepodsLayout) -> Executor:
        """Makes executor and enforcers in the first cycle with a cgroup of pods."""
        if self.executor is not None:
            return self.executor
        names = [os.path.join(self._paths.parent, folder) for folder, _, _ in kube.folders]  # noqa: PTH118  relative names
        self._kube = KubepodsFolders(*names)
        self.executor = Executor(
            CgroupTree(self._paths.root, hierarchy.version, names[0]), self._clock_ns, self._original_values
        )
        if self.on_write is not None:
            self.executor.on_write = self.on_write
        self.new_pods = PodCgroupWriter(self.executor, kube, self._paths.parent)
        self._suppress_enforcer = CpuSuppressEnforcer(self.executor, self._report_action)
        self._burst_enforcer = CpuBurstEnforcer(self.executor, self._report_action)
        self._block_io_enforcer = BlockIoEnforcer(self.executor, self._paths.sys, self._paths.proc, self._paths.kubelet)
        cpus_online = (one.cpu for one in self._processors)
        self._interference_gauges = InterferenceGauges(
            self._paths.root, self._paths.sys, hierarchy.version, self._gates, cpus_online, self._clock_ns
        )
        self._interference_detector = InterferenceDetector(
            InterferenceCounters(
                self._paths.root,
                self._paths.proc,
                hierarchy.version,
                lambda: self._interference_gauges.cycles,
                lambda: self._non_cgroup_files.dropped_packets(self._lookup.pods),
            ),
            self._report_action,
            self._state_dir,
            self._clock_ns,
            read_hardware(self._paths.proc, self._paths.sys).basic.model,
        )
        processes = Processes(self._paths.root, self._paths.proc)
        self.hook_audit = HookAudit(self.hook_records, self.executor, processes, self.runtime_side)
        self._cgroup_reconciler = CgroupReconciler(
            self.executor, self._gates, os.sysconf("SC_PAGE_SIZE"), self.hook_audit
        )
        return self.executor

    @property
    def _keeps_pods(self) -> bool:
        """Reports whether CPU burst is on, which reads the recent usage of pods."""
        burst = self._spec.cpu_burst_strategy
        return self._gates["CPUBurst"] and burst is not None and burst.policy not in {"", "none"}

    def _best_effort_cgroups(self) -> BestEffortCgroups:
        assert self.executor is not None, "made before any strategy runs"
        return best_effort_cgroups(self._paths, self._folders.best_effort, self.executor.tree.version)

    def _suppress(self, snapshot: UsageSnapshot, now_ns: int) -> None:
        node_pods, threshold = self._pods.in_force, self._spec.resource_used_threshold_with_be
        if not self._gates["BECPUSuppress"] or node_pods is None or threshold is None:
            return
        if self._slo.spec is None and not self._suppress_enforcer.used:
            return  # no NodeSLO yet, and nothing to restore
        current = self._suppress_enforcer.current(self._folders.best_effort)
        if current is None:
            return
        usage = Usage(
            None if snapshot.node is None or snapshot.node.cpu is None else snapshot.node.cpu * 1000,
            {uid: used.cpu * 1000 for uid, used in snapshot.pods.items() if used.cpu is not None},
            {name: used.cpu * 1000 for name, used in snapshot.applications.items() if used.cpu is not None},
        )
        at = SuppressInputs(
            node_pods.object,
            node_pods.pods,
            usage,
            tuple(map(HostApp.of, self._spec.host_applications)),
            self._processors,
            ReservedCpus.of(node_pods.topology),
            *current,
            manager=self._gates["BECPUManager"],
            best_effort=self._best_effort_uids_of(node_pods),
        )
        threshold = self._interference_detector.threshold(threshold)
        self._suppress_enforcer.run_cycle(threshold, at, self._best_effort_cgroups, self._folders.best_effort, now_ns)

    def _best_effort_uids_of(self, node_pods: NodePods) -> frozenset[str]:
        """Returns the uids of best-effort pods."""
        if self._best_effort_uids[0] is not node_pods:
            self._best_effort_uids = (node_pods, best_effort_of(node_pods.pods))
        return self._best_effort_uids[1]

    def _burst(self, now_ns: int) -> None:
        strategy = self._spec.cpu_burst_strategy
        if not self._gates["CPUBurst"] or strategy is None:
            return
        pods_under_burst = self._burst_enforcer.pods_under_burst(strategy, self._lookup.pods)
        if not pods_under_burst:
            return

        def state() -> NodeState:
            begin = now_ns - BURST_WINDOW_NS
            return cpu_burst.node_state(
                strategy.share_pool_threshold_percent,
                len(self._processors) or None,
                self._history.node_cores.mean(begin),
                self._history.pod_means(begin),
                [each.pod for each in self._lookup.pods],
            )

        self.state = self._burst_enforcer.run_cycle(strategy, state, pods_under_burst, now_ns) or self.state

    def _evict(self, snapshot: UsageSnapshot, now_ns: int) -> None:
        node_pods, threshold = self._pods.in_force, self._spec.resource_used_threshold_with_be
        if (
            not self._eviction_enforcer.enabled
            or node_pods is None
            or node_pods.object is None
            or threshold is None
            or not threshold.enable
        ):
            return
        self._sample_best_effort(snapshot)
        load = self._history.load(threshold, snapshot, now_ns)
        self._eviction_enforcer.run_cycle(threshold, node_pods.object, node_pods.pods, load, now_ns)

    def _sample_best_effort(self, snapshot: UsageSnapshot) -> None:
        """Samples usage, request and limit of best effort, for BECPUEvict."""
        node_pods = self._pods.in_force
        if node_pods is None or snapshot.best_effort is None or snapshot.best_effort.cpu is None:
            return
        current = self._suppress_enforcer.current(self._folders.best_effort)
        if current is None:
            return
        assert self.executor is not None, "made before any strategy runs"
        limit = self._best_effort_limits.limit(self.executor, self._lookup.pods, self._folders.best_effort, current)
        request = self._best_effort_limits.request(node_pods)
        self._history.record_best_effort(snapshot.at_ns, snapshot.best_effort.cpu / 1000, request, limit)
