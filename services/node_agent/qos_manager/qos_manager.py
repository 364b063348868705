"""The agent's hands: after each round of measuring, the strategies that are due. What it changes it puts back at the end.

It works from the last NodeSLO and the last pods that it heard, so also when the bus is away. Source: spec/node-agent.md 3, 4.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from services.node_agent.cgroup.container_paths import Placed, containers, placed
from services.node_agent.cgroup.executor import Executor, Tree, Wanted
from services.node_agent.cgroup.kubepods_paths import Hierarchy, KubePods
from services.node_agent.cgroup.original_values import Found
from services.node_agent.collectors.extra_metrics import Details, Gauge
from services.node_agent.collectors.metric_cache import Series
from services.node_agent.collectors.usage_samples import Round
from services.node_agent.kernel.non_cgroup_files import NodeFiles
from services.node_agent.prometheus import koordlet_series
from services.node_agent.qos_manager.enforcers.block_io import BlockDevices
from services.node_agent.qos_manager.enforcers.cgroup_reconciler import KubeFolders, Reconciler
from services.node_agent.qos_manager.enforcers.cpu_burst import Burster
from services.node_agent.qos_manager.enforcers.cpu_suppress import Cgroups, Suppressor
from services.node_agent.qos_manager.enforcers.eviction import Evictor
from services.node_agent.qos_manager.strategies import cpu_burst, cpu_evict, eviction_order
from services.node_agent.qos_manager.strategies.cpu_burst import NodeState
from services.node_agent.qos_manager.strategies.cpu_evict import BATCH_CPU, BestEffort, Window
from services.node_agent.qos_manager.strategies.cpu_suppress import HostApp, Situation, Usage, best_effort_of
from services.node_agent.qos_manager.strategies.eviction_tasks import Load
from services.node_agent.states_informer.annotations import HeldCpus, cpus
from services.node_agent.states_informer.node_pods import PodsKeeper
from services.node_agent.states_informer.node_slo import SloKeeper
from services.node_agent.topology import cpu_topology
from services.node_agent.topology.topology_reporter import Describer
from shared.agents.actions import AnyDeed
from shared.agents.node_pods import NodePods
from shared.domain.qos import QoS, raw_qos
from shared.domain.slo_defaults import NodeSloSpec, in_force
from shared.kube.instants import SECOND

log = logging.getLogger(__name__)

RECONCILE_EVERY_NS = 10 * SECOND
POD_KEPT_NS = 12 * SECOND
"""What is looked back at of a pod."""
LATEST_NS = 2 * SECOND
BURST_WINDOW_NS = 5 * SECOND
LOOK_EVERY_NS = 5 * SECOND
"""A pod's new containers are found within this time."""


class Places(NamedTuple):
    """Where the agent finds things.

    Attributes:
        root: where cgroup hierarchies are mounted.
        parent: the cgroup that kubepods lies in, relative to a controller's root.
        proc, sys: procfs and sysfs.
        logs: the kubelet's links to the logs of containers.
        kubelet: its folder, below which it mounts volumes.
        terway: where Terway reads shares of the network.
        kubelet_config: the file of its configuration.
    """

    root: Path
    parent: str
    sys: Path
    logs: Path
    proc: Path = Path("/proc")
    kubelet: Path = Path("/var/lib/kubelet")
    terway: Path = Path("/var/lib/terway/qos")
    kubelet_config: Path = Path("/var/lib/kubelet/config.yaml")


class Acted(NamedTuple):
    """What the strategies did since the start.

    Attributes:
        written, refused: files of cgroups written, and those that the kernel did not take.
        pods: pods that the agent was told of; None before it was told.
    """

    written: int
    refused: int
    pods: int | None


class Governor:
    """Runs the strategies of one node.

    Attributes:
        executor: what writes; None before there is a cgroup of pods.
        state: how busy shared CPUs are, by CPU burst's last round.
    """

    def __init__(
        self,
        places: Places,
        slo: SloKeeper,
        pods: PodsKeeper,
        gates: Mapping[str, bool],
        *,
        tell: Callable[[AnyDeed], None],
        clock_ns: Callable[[], int],
        state_dir: Path | None,
        interval_s: float,
    ) -> None:
        self.executor: Executor | None = None
        self.state = NodeState.UNKNOWN
        self._places, self._slo, self._pods, self._gates = places, slo, pods, gates
        self._tell, self._clock_ns = tell, clock_ns
        self._found = Found(state_dir)
        self._found.load()
        self._interval_s = max(1, int(interval_s))
        self._processors = cpu_topology.processors(places.sys)
        self._spec_of: object = ()
        self._spec = in_force(NodeSloSpec())
        self._placed: list[Placed] = []
        self._placed_of: tuple[object, ...] = ()
        self._reconciled_ns = -RECONCILE_EVERY_NS
        self._reconciled_of: tuple[object, ...] = ()
        self._request: tuple[object, int] = (None, 0)
        self._best_effort_uids: tuple[object, frozenset[str]] = (None, frozenset())
        self._best_effort_folders: tuple[object, tuple[str, ...]] = (None, ())
        self._node_cores, self._node_bytes = Series(), Series()
        self._pod_cores: dict[str, Series] = {}
        self._best_effort: tuple[Series, Series, Series] = (Series(), Series(), Series())
        self._kube: KubeFolders | None = None
        self._files = NodeFiles(places.proc, places.sys, places.root, state_dir, gates, clock_ns, places.terway)
        self._evictor = Evictor(gates, tell, clock_ns())
        self._measured: Round | None = None
        self._describer = Describer(places.proc, places.sys, places.kubelet, places.kubelet_config, gates, tell)

    def round(self, found: Round, hierarchy: Hierarchy, kube: KubePods | None, folders: Mapping[str, str]) -> None:
        """After a round of measuring.

        Args:
            kube: how pods are laid out; None while there are none.
            folders: uid -> folder of each pod, below `hierarchy`'s.
        """
        self._remember(found)
        if self._pods.in_force is not None:
            self._describer.round(self._pods.in_force, self._clock_ns())
        if kube is None or hierarchy.listed is None:
            return
        self._begin(hierarchy, kube)
        if self._slo.in_force is not self._spec_of:
            self._spec_of, self._spec = self._slo.in_force, in_force(self._slo.spec or NodeSloSpec())
        now_ns = self._clock_ns()
        changed = self._place(folders, now_ns)
        self._suppress(found, now_ns)
        self._burst(now_ns)
        self._evict(found, now_ns)
        self._reconcile(changed=changed, now_ns=now_ns)
        self._details.round(self._placed)

    def _reconcile(self, *, changed: bool, now_ns: int) -> None:
        """Values are worked out when something has changed, and looked at now and then."""
        known = self._pods.in_force
        assert self.executor is not None, "made before any strategy runs"
        if known is None or not (changed or now_ns - self._reconciled_ns >= RECONCILE_EVERY_NS):
            return
        self._reconciled_ns = now_ns
        of = (known, self._spec)
        if changed or of != self._reconciled_of:
            self._reconciled_of = of
            self._reconciler.round(self._spec, known.object, known.topology, self._folders, self._placed)
        else:
            self._reconciler.again()
        self._files.round(self._spec, known.object, self._placed)
        for folder, class_id in self._files.class_ids(self._placed):
            self.executor.update(Wanted("net_cls.classid", folder, str(class_id)))
        if self._gates["BlkIOReconcile"] and self._spec.resource_qos_strategy is not None:
            self._devices.round(self._spec.resource_qos_strategy, self._folders.best_effort, self._placed, known.claims)

    @property
    def acted(self) -> Acted:
        """What was done so far."""
        known = self._pods.in_force
        pods = None if known is None else len(known.pods)
        if self.executor is None:
            return Acted(0, 0, pods)
        return Acted(self.executor.written, self.executor.refused, pods)

    def gauges(self) -> Iterator[Gauge]:
        """What it knows, holds, and has measured besides usage."""
        known, found = self._pods.in_force, self._measured
        if known is not None:
            yield from koordlet_series.sold(known.object)
            yield from koordlet_series.asked_for(self._placed)
            yield from koordlet_series.share_pools(known.topology)
            yield from koordlet_series.oom_scores(self._placed)
            if found is not None:
                yield from koordlet_series.used(found, self._uids_of(known))
        for reason, count in self._evictor.asked.items():
            yield Gauge("koordlet_pod_eviction", {"reason": reason}, count)
        if self.executor is not None:
            if (policy := self._suppressor.policy) is not None:
                held = self._suppressor.now(self._folders.best_effort)
                yield from koordlet_series.suppressed(policy, held)
            if (strategy := self._spec.cpu_burst_strategy) is not None and self._gates["CPUBurst"]:
                yield from koordlet_series.burst(self.executor, self._burster.concerned(strategy, self._placed))
            yield from self._details.gauges()
            yield from self._files.gauges()

    def release(self) -> None:
        """Put back what was found."""
        if self.executor is None:
            return
        self._suppressor.release(self._cgroups())
        self._files.release()
        self._devices.release()
        self._details.close()
        written = self.executor.restore()
        log.info("cgroups are as they were found", extra={"written": written})

    @property
    def _folders(self) -> KubeFolders:
        assert self._kube is not None, "set before any strategy runs"
        return self._kube

    def _begin(self, hierarchy: Hierarchy, kube: KubePods) -> None:
        if self.executor is not None:
            return
        names = [os.path.join(self._places.parent, folder) for folder, _, _ in kube.folders]  # noqa: PTH118  relative names
        self._kube = KubeFolders(*names)
        self.executor = Executor(Tree(self._places.root, hierarchy.version, names[0]), self._clock_ns, self._found)
        self._suppressor = Suppressor(self.executor, self._tell)
        self._burster = Burster(self.executor, self._tell)
        self._devices = BlockDevices(self.executor, self._places.sys, self._places.proc, self._places.kubelet)
        cpus_online = (one.cpu for one in self._processors)
        self._details = Details(
            self._places.root, self._places.sys, hierarchy.version, self._gates, cpus_online, self._clock_ns
        )
        self._reconciler = Reconciler(self.executor, self._gates, os.sysconf("SC_PAGE_SIZE"))

    def _remember(self, found: Round) -> None:
        self._measured = found
        if found.node is not None:
            if found.node.cpu is not None:
                self._node_cores.add(found.at_ns, found.node.cpu / 10**6)
            if found.node.memory is not None:
                self._node_bytes.add(found.at_ns, found.node.memory)
        if not self._keeps_pods:
            return
        for uid in self._pod_cores.keys() - found.pods.keys():
            del self._pod_cores[uid]
        for uid, usage in found.pods.items():
            if usage.cpu is not None:
                series = self._pod_cores.get(uid)
                if series is None:
                    series = self._pod_cores[uid] = Series(POD_KEPT_NS)
                series.add(found.at_ns, usage.cpu / 10**6)

    @property
    def _keeps_pods(self) -> bool:
        """Whether CPU burst, which looks back at pods, has anything to do."""
        burst = self._spec.cpu_burst_strategy
        return self._gates["CPUBurst"] and burst is not None and burst.policy not in {"", "none"}

    def _place(self, folders: Mapping[str, str], now_ns: int) -> bool:
        """Look containers up when pods have changed, and now and then; whether anything is new."""
        known = self._pods.in_force
        what = (known, self._spec_of, frozenset(folders))
        if (what, now_ns // LOOK_EVERY_NS) == self._placed_of:
            return False
        before, changed = self._placed, not self._placed_of or what != self._placed_of[0]
        self._placed_of = (what, now_ns // LOOK_EVERY_NS)
        base = self._places.root / "cpu" if self._executor_version == 1 else self._places.root
        names = cpu_topology.container_names(self._places.logs)
        self._placed = []
        for pod in known.pods if known is not None else ():
            if (folder := folders.get(pod.metadata.uid)) is not None:
                whole = os.path.join(self._places.parent, folder)  # noqa: PTH118
                self._placed.append(placed(pod, whole, containers(base, whole), names))
        gone = {folder for each in before for folder in (each.folder, *each.containers.values())}
        gone -= {folder for each in self._placed for folder in (each.folder, *each.containers.values())}
        if gone and self.executor is not None:
            self.executor.forget(gone)
        return changed or before != self._placed

    @property
    def _executor_version(self) -> int:
        assert self.executor is not None, "made before any strategy runs"
        return self.executor.tree.version

    def _cgroups(self) -> Cgroups:
        top = self._folders.best_effort
        base = self._places.root / "cpuset" if self._executor_version == 1 else self._places.root
        found = {}
        try:
            names = os.listdir(base / top)  # noqa: PTH208
        except OSError:
            names = []
        for name in names:
            if "pod" in name and (base / top / name).is_dir():
                folder = f"{top}/{name}"
                uid = name.partition("pod")[2].removesuffix(".slice").replace("_", "-")
                found[uid] = (folder, tuple(containers(base, folder).values()))
        return Cgroups(top, found)

    def _suppress(self, found: Round, now_ns: int) -> None:
        known, threshold = self._pods.in_force, self._spec.resource_used_threshold_with_be
        if not self._gates["BECPUSuppress"] or known is None or threshold is None:
            return
        if self._slo.spec is None and not self._suppressor.used:
            return  # nobody has said anything
        held = self._suppressor.now(self._folders.best_effort)
        if held is None:
            return
        usage = Usage(
            None if found.node is None or found.node.cpu is None else found.node.cpu * 1000,
            {uid: used.cpu * 1000 for uid, used in found.pods.items() if used.cpu is not None},
            {name: used.cpu * 1000 for name, used in found.applications.items() if used.cpu is not None},
        )
        at = Situation(
            known.object,
            known.pods,
            usage,
            tuple(map(HostApp.of, self._spec.host_applications)),
            self._processors,
            HeldCpus.of(known.topology),
            *held,
            manager=self._gates["BECPUManager"],
            best_effort=self._uids_of(known),
        )
        self._suppressor.round(threshold, at, self._cgroups, self._folders.best_effort, now_ns)

    def _uids_of(self, known: NodePods) -> frozenset[str]:
        """Uids of best effort among the pods that are known."""
        if self._best_effort_uids[0] is not known:
            self._best_effort_uids = (known, best_effort_of(known.pods))
        return self._best_effort_uids[1]

    def _burst(self, now_ns: int) -> None:
        strategy = self._spec.cpu_burst_strategy
        if not self._gates["CPUBurst"] or strategy is None:
            return
        concerned = self._burster.concerned(strategy, self._placed)
        if not concerned:
            return

        def state() -> NodeState:
            begin = now_ns - BURST_WINDOW_NS
            cores = {uid: mean for uid, series in self._pod_cores.items() if (mean := series.mean(begin)) is not None}
            return cpu_burst.node_state(
                strategy.share_pool_threshold_percent,
                len(self._processors) or None,
                self._node_cores.mean(begin),
                cores,
                [each.pod for each in self._placed],
            )

        self.state = self._burster.round(strategy, state, concerned, now_ns) or self.state

    def _evict(self, found: Round, now_ns: int) -> None:
        known, threshold = self._pods.in_force, self._spec.resource_used_threshold_with_be
        if (
            not self._evictor.wanted
            or known is None
            or known.object is None
            or threshold is None
            or not threshold.enable
        ):
            return
        self._sample_best_effort(found)
        begin = now_ns - cpu_evict.window_s(threshold, self._interval_s) * SECOND
        usage, request, limit = self._best_effort
        means = tuple(series.mean(begin) for series in self._best_effort)
        lasts = tuple(series.last(now_ns - LATEST_NS * self._interval_s) for series in (usage, request, limit))
        load = Load(
            Window(
                None if None in means else BestEffort(*(mean or 0.0 for mean in means)),
                len(usage.within(begin)),
                self._node_cores.mean(begin),
            ),
            None if None in lasts else BestEffort(*(last or 0.0 for last in lasts)),
            self._node_bytes.last(now_ns - LATEST_NS * self._interval_s),
            {uid: used.cpu / 10**6 for uid, used in found.pods.items() if used.cpu is not None},
            {uid: float(used.memory) for uid, used in found.pods.items() if used.memory is not None},
            self._interval_s,
        )
        self._evictor.round(threshold, known.object, known.pods, load, now_ns)

    def _sample_best_effort(self, found: Round) -> None:
        """What best effort uses, asks for and is held to, for BECPUEvict."""
        known = self._pods.in_force
        if known is None or found.best_effort is None or found.best_effort.cpu is None:
            return
        held = self._suppressor.now(self._folders.best_effort)
        if held is None:
            return
        if self._best_effort_folders[0] is not self._placed:
            below = f"{self._folders.best_effort}/"
            found_folders = (each for each in self._placed if each.folder.startswith(below))
            self._best_effort_folders = (
                self._placed,
                tuple(folder for each in found_folders for folder in each.containers.values()),
            )
        texts = {self._known_cpus(folder) for folder in self._best_effort_folders[1]}
        limit = cpu_evict.real_limit((held[0], *map(cpus, texts)), held[1])
        if self._request[0] is not known:
            asked = (eviction_order.request_of(pod, BATCH_CPU) for pod in known.pods if raw_qos(pod) is QoS.BE)
            self._request = (known, sum(asked))
        request = self._request[1]
        for series, value in zip(self._best_effort, (found.best_effort.cpu / 1000, request, limit), strict=True):
            series.add(found.at_ns, float(value))

    def _known_cpus(self, folder: str) -> str:
        assert self.executor is not None, "made before any strategy runs"
        return self.executor.known("cpuset.cpus", folder) or ""
