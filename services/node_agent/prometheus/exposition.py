"""The agent's metrics in Prometheus' exposition format, computed on request.

Series that koordlet has too keep its names.

Source: spec/node-agent.md 7.5.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from services.node_agent.collect_report_loop import Figures
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.prometheus.durations import BUCKETS_MS, Histogram

MICRO = 1_000_000


TEXTS = {
    "koord_node_agent_pod_throttled": "Part of the last periods in which a pod was throttled",
    "koord_node_agent_container_throttled": "Part of the last periods in which a container was throttled",
    "koord_node_agent_nri_connected": "1 while the container runtime sends its requests to the agent",
    "koord_node_agent_hooked_containers": "Containers that a hook has changed before they started",
    "koord_node_agent_hook_failures": "Containers to which a hook could not be applied",
    "koord_node_agent_hook_repairs": "Containers that ran without the values of their hooks when the agent connected",
    "koord_node_agent_container_hooks": "Containers by whether they started with their hooks, since the agent's start",
    "koord_node_agent_longest_hook_repair_seconds": "Longest time for which a container ran before it was repaired",
    "koordlet_resource_update_duration_milliseconds": "Time that writing a cgroup file took",
    "koordlet_pod_psi": "Percent of the last 10, 60 or 300 seconds in which a pod waited",
    "koordlet_container_psi": "Percent of the last 10, 60 or 300 seconds in which a container waited",
    "koordlet_container_cpi": "Cycles and instructions of a container over ten seconds",
    "koordlet_resctrl_llc_occupancy": "Bytes of last-level cache that a class holds",
    "koordlet_resctrl_memory_bandwidth": "Bytes that a class has moved so far",
    "koordlet_host_application_resource_usage": "Usage of a host application",
    "koordlet_node_predicted_resource_reclaimable": "Requests of prod pods that are predicted to stay unused",
    "koordlet_node_predicted_resource_peak": "Predicted peak usage of prod pods",
    "koordlet_node_metric_node_usage": "Usage of the node, as its NodeMetric has it",
    "koordlet_node_metric_system_usage": "Usage outside of pods, as the NodeMetric has it",
    "koordlet_node_metric_numa_node_usage": "Usage of a NUMA zone, as the NodeMetric has it",
    "koordlet_node_metric_numa_system_usage": "Usage of a NUMA zone outside of pods, as the NodeMetric has it",
    "koordlet_node_resource_allocatable": "Batch and mid resources of the node",
    "koordlet_container_resource_requests": "Batch and mid resources that a container requests",
    "koordlet_container_resource_limits": "Batch and mid resources that bound a container",
    "koordlet_be_suppress_cpu_cores": "CPU that best effort may use",
    "koordlet_be_suppress_ls_used_cpu_cores": "CPU in use of pods that are not best effort",
    "koordlet_be_suppress_be_used_cpu_cores": "CPU in use of best effort",
    "koordlet_pod_eviction": "Evictions that the agent requested since its start",
    "koordlet_pod_eviction_detail": "The same by pod, for five minutes after the pod's last one",
    "koordlet_node_priority_resource_reclaimable": "Unused requests of prod pods, as the NodeMetric has them",
    "koordlet_node_resource_priority_reclaimable_status": "0 while they are predicted, otherwise 1",
    "koordlet_core_sched_cookie_manage_status": "Assignments of new processes to the cookie of their group",
    "koordlet_cpuset_share_pool_cpu_cores": "CPUs that pods without CPUs of their own share",
    "koordlet_cpuset_be_share_pool_cpu_cores": "CPUs of the share pools of best effort",
    "koordlet_cpuset_share_pool_info": "1 for each CPU of the share pools",
    "koordlet_cpuset_be_share_pool_info": "1 for each CPU of the share pools of best effort",
    "koordlet_container_scaled_cfs_quota_us": "Quota of a container that CPU burst has raised",
    "koordlet_container_scaled_cfs_burst_us": "Burst buffer of a container",
    "koordlet_container_oom_score_adj": "OOM score of a pod's annotation for its container",
    "koordlet_container_core_sched_cookie": "1 for each container that shares cores only with its group",
}
"""Series with labels of their own -> help text."""


def _families(node: str, gauges: Iterable[Gauge]) -> Iterable[Metric]:
    families: dict[str, GaugeMetricFamily] = {}
    for name, labels, value in gauges:
        family = families.get(name)
        if family is None:
            family = families[name] = GaugeMetricFamily(name, TEXTS[name], labels=["node", *labels])
        family.add_metric([node, *labels.values()], value)
    return families.values()


def _histograms(found: Iterable[Histogram]) -> Iterable[Metric]:
    families: dict[str, HistogramMetricFamily] = {}
    for name, labels, counts, sum_ms in found:
        family = families.get(name)
        if family is None:
            family = families[name] = HistogramMetricFamily(name, TEXTS[name], labels=list(labels))
        bounds = (*(f"{bound:g}" for bound in BUCKETS_MS), "+Inf")
        family.add_metric(list(labels.values()), list(zip(bounds, counts, strict=True)), sum_ms)
    return families.values()


class AgentMetrics(Collector):
    """Converts the agent's figures to metric families."""

    def __init__(self, figures: Callable[[], Figures], connected: Callable[[], bool]) -> None:
        self._figures = figures
        self._connected = connected
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Returns the page."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Returns no descriptions, so that registration collects nothing."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yields the present figures."""
        now = self._figures()
        cpu, memory, _ = now.usage or (None, None, None)
        gauges: list[tuple[str, str, float | None]] = [
            ("koordlet_start_time", "When the agent began, seconds since the epoch", now.started_s),
            ("koordlet_node_used_cpu_cores", "CPU in use", None if cpu is None else cpu / MICRO),
            ("koordlet_node_used_memory_bytes", "Memory in use without page cache", memory),
            ("koord_node_agent_pods", "Pods found", now.pods),
            ("koord_node_agent_backlog_messages", "Reports and actions not accepted yet", now.backlog),
            ("koord_node_agent_backlog_bytes", "Their bytes", now.backlog_bytes),
            ("koord_node_agent_kept_reports", "Reports on disk that are not accepted yet", now.kept[0]),
            ("koord_node_agent_kept_bytes", "Bytes of their files", now.kept[1]),
            ("koord_node_agent_connected", "1 while reports are accepted", self._connected()),
            ("koord_node_agent_slo_epoch", "Epoch of the NodeSLO in force", now.slo and now.slo[0]),
            ("koord_node_agent_slo_seq", "Seq of the NodeSLO in force", now.slo and now.slo[1]),
        ]
        enforcement = now.enforcement
        if enforcement is not None:
            gauges.append(
                ("koord_node_agent_known_pods", "Pods of the node that the agent has received", enforcement.pods)
            )
        counters: list[tuple[str, str, float]] = [
            ("koord_node_agent_cycles", "Collection cycles", now.cycles),
            ("koord_node_agent_cycles_seconds", "Time that they took", now.cycle_s),
            ("koord_node_agent_reports", "Reports made", now.reports),
            ("koord_node_agent_sent", "Reports and actions accepted", now.sent),
            ("koord_node_agent_refused", "Reports and actions refused for good", now.refused),
            ("koord_node_agent_dropped", "Reports and actions dropped for lack of space", now.dropped),
            ("koord_node_agent_slo_refused", "NodeSLOs rejected", now.slo_refused),
        ]
        if enforcement is not None:
            counters += [
                ("koord_node_agent_writes", "Cgroup files written", enforcement.written),
                ("koord_node_agent_writes_refused", "Cgroup writes that the kernel rejected", enforcement.refused),
            ]
        for name, text, value in gauges:
            if value is not None:
                gauge = GaugeMetricFamily(name, text, labels=["node"])
                gauge.add_metric([now.node], value)
                yield gauge
        yield from _families(now.node, now.gauges)
        yield from _histograms(now.histograms)
        for name, text, value in counters:
            counter = CounterMetricFamily(name, text, labels=["node"])
            counter.add_metric([now.node], value)
            yield counter
