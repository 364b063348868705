"""Recent usage of the node, its pods and best effort, as far back as strategies look."""

from collections.abc import Sequence

from services.node_agent.cgroup.executor import Executor
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.recent_metric_samples import MetricSeries
from services.node_agent.collectors.usage_sample_types import UsageSnapshot
from services.node_agent.qos_manager.strategies import cpu_evict, requests_to_release_by_class
from services.node_agent.qos_manager.strategies.cpu_evict import BATCH_CPU, BestEffort, Window
from services.node_agent.qos_manager.strategies.eviction_strategies import Load
from services.node_agent.states_informer.annotations import cpus
from shared.agents.node_pods import NodePods
from shared.domain.qos import QoS, raw_qos
from shared.kube.instants import SECOND
from shared.kube.slo_config import ResourceThreshold

POD_KEPT_NS = 12 * SECOND
"""Nanoseconds of a pod's usage that are kept: the longest time that strategies look back."""
LATEST_NS = 2 * SECOND


class UsageHistory:
    """Series of usage in cores and bytes.

    Attributes:
        latest: the newest snapshot.
        node_cores: cores that the node used.
    """

    def __init__(self, interval_s: int) -> None:
        self.latest: UsageSnapshot | None = None
        self.node_cores = MetricSeries()
        self._interval_s = interval_s
        self._node_bytes = MetricSeries()
        self._pod_cores: dict[str, MetricSeries] = {}
        self._best_effort = (MetricSeries(), MetricSeries(), MetricSeries())

    def record(self, snapshot: UsageSnapshot, *, with_pods: bool) -> None:
        """Records the samples of a cycle.

        Args:
            with_pods: record pods too, which only CPU burst reads.
        """
        self.latest = snapshot
        if snapshot.node is not None:
            if snapshot.node.cpu is not None:
                self.node_cores.add(snapshot.at_ns, snapshot.node.cpu / 10**6)
            if snapshot.node.memory is not None:
                self._node_bytes.add(snapshot.at_ns, snapshot.node.memory)
        if not with_pods:
            return
        for uid in self._pod_cores.keys() - snapshot.pods.keys():
            del self._pod_cores[uid]
        for uid, usage in snapshot.pods.items():
            if usage.cpu is not None:
                series = self._pod_cores.get(uid)
                if series is None:
                    series = self._pod_cores[uid] = MetricSeries(POD_KEPT_NS)
                series.add(snapshot.at_ns, usage.cpu / 10**6)

    def record_best_effort(self, at_ns: int, usage: float, request: float, limit: float) -> None:
        """Records usage, request and limit of best effort; milli-cores."""
        for series, value in zip(self._best_effort, (usage, request, limit), strict=True):
            series.add(at_ns, float(value))

    def pod_means(self, begin_ns: int) -> dict[str, float]:
        """Returns uid -> mean of the cores that a pod used since an instant."""
        return {uid: mean for uid, series in self._pod_cores.items() if (mean := series.mean(begin_ns)) is not None}

    def load(self, threshold: ResourceThreshold, snapshot: UsageSnapshot, now_ns: int) -> Load:
        """Returns the input of the eviction strategies."""
        begin = now_ns - cpu_evict.window_s(threshold, self._interval_s) * SECOND
        latest = now_ns - LATEST_NS * self._interval_s
        means = tuple(series.mean(begin) for series in self._best_effort)
        lasts = tuple(series.last(latest) for series in self._best_effort)
        return Load(
            Window(
                None if None in means else BestEffort(*(mean or 0.0 for mean in means)),
                len(self._best_effort[0].within(begin)),
                self.node_cores.mean(begin),
            ),
            None if None in lasts else BestEffort(*(last or 0.0 for last in lasts)),
            self._node_bytes.last(latest),
            {uid: used.cpu / 10**6 for uid, used in snapshot.pods.items() if used.cpu is not None},
            {uid: float(used.memory) for uid, used in snapshot.pods.items() if used.memory is not None},
            self._interval_s,
        )


class BestEffortLimits:
    """Request and limit of best effort, for BECPUEvict; both are computed again only when their inputs change."""

    def __init__(self) -> None:
        self._request: tuple[object, int] = (None, 0)
        self._folders: tuple[object, tuple[str, ...]] = (None, ())

    def request(self, node_pods: NodePods) -> int:
        """Returns the batch cpu that best-effort pods request; milli-cores."""
        if self._request[0] is not node_pods:
            requests = (
                requests_to_release_by_class.request_of(pod, BATCH_CPU)
                for pod in node_pods.pods
                if raw_qos(pod) is QoS.BE
            )
            self._request = (node_pods, sum(requests))
        return self._request[1]

    def limit(
        self,
        executor: Executor,
        pods: Sequence[PodCgroups],
        top: str,
        current: tuple[frozenset[int], int],
    ) -> int:
        """Returns the cpu that best effort may use; milli-cores.

        Args:
            pods: the list of `PodCgroupLookup`, which is a new one after each lookup.
            top: the cgroup that holds best-effort pods.
            current: CPUs and quota of that cgroup.
        """
        if self._folders[0] is not pods:
            found = (each for each in pods if each.folder.startswith(f"{top}/"))
            self._folders = (pods, tuple(folder for each in found for folder in each.containers.values()))
        texts = {executor.cached_value("cpuset.cpus", folder) or "" for folder in self._folders[1]}
        return cpu_evict.real_limit((current[0], *map(cpus, texts)), current[1])
