"""Series of koordlet's metrics page, computed on request from pods, NodeSLO and cgroups.

Source: spec/node-agent.md 7.5.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from services.node_agent.cgroup.cpu_conversions import PERIOD_US, quota
from services.node_agent.cgroup.executor import Executor
from services.node_agent.cgroup.pod_cgroup_paths import PodCgroups
from services.node_agent.collectors.interference_gauges import Gauge
from services.node_agent.collectors.usage_sample_types import MICRO, UsageSnapshot
from services.node_agent.qos_manager.enforcers.cpu_burst import BUFFER, QUOTA
from services.node_agent.qos_manager.strategies.cpu_burst import limit_milli
from services.node_agent.qos_manager.strategies.cpu_suppress import CPUSET
from services.node_agent.runtime_hooks import oom_score_from_annotations
from services.node_agent.runtime_hooks.cpuset import CpuRule
from services.node_agent.states_informer.annotations import cpus
from shared.agents.report import Forecast
from shared.domain.priority import Priority, resource_of
from shared.kube.node import Node
from shared.kube.quantity import BadQuantity, nanos, value

UNITS = {
    resource_of(priority, resource): unit
    for priority in (Priority.BATCH, Priority.MID)
    for resource, unit in (("cpu", "integer"), ("memory", "byte"))
}
"""Batch and mid resources: those of cpu are counted in milli-cores."""


def node_allocatable(node: Node | None) -> Iterator[Gauge]:
    """Yields batch and mid resources of the node."""
    allocatable = {} if node is None else node.status.allocatable or {}
    for name, size in _amounts(allocatable):
        yield Gauge("koordlet_node_resource_allocatable", {"resource": name, "unit": UNITS[name]}, size)


def container_requests(pods: Iterable[PodCgroups]) -> Iterator[Gauge]:
    """Yields requests and limits of batch and mid resources by container."""
    for each in pods:
        for container in each.pod.spec.containers:
            resources = container.resources
            if resources is None:
                continue
            labels = each.labels_of(container.name)
            for kind, amounts in (("requests", resources.requests), ("limits", resources.limits)):
                for name, size in _amounts(amounts or {}):
                    own = {"resource": name, "unit": UNITS[name], **labels}
                    yield Gauge(f"koordlet_container_resource_{kind}", own, size)


def share_pools(topology: Mapping[str, str] | None, *, each_cpu: bool) -> Iterator[Gauge]:
    """Yields the number of CPUs of the share pools, and of the share pools of best effort.

    Args:
        each_cpu: yield one series for each CPU, too.
    """
    if topology is None:
        return
    rule = CpuRule.of(topology)
    for kind, pools in (("share_pool", rule.ls), ("be_share_pool", rule.be)):
        found = frozenset[int]().union(*map(cpus, pools.values()))
        yield Gauge(f"koordlet_cpuset_{kind}_cpu_cores", {}, len(found))
        for cpu in sorted(found) if each_cpu else ():
            yield Gauge(f"koordlet_cpuset_{kind}_info", {"cpu": str(cpu)}, 1)


def prod_reclaimable(forecast: Forecast | None) -> Iterator[Gauge]:
    """Yields the unused requests of prod pods as the NodeMetric has them; status 1 and zeros where nothing is predicted."""
    known = forecast is not None and forecast.cpu_milli is not None and forecast.memory is not None
    cpu_milli, memory = (forecast.cpu_milli or 0, forecast.memory or 0) if forecast is not None and known else (0, 0)
    of = {"priority": Priority.PROD.value}
    for resource, unit, size in (("cpu", "core", cpu_milli / 1000), ("memory", "byte", memory)):
        yield Gauge("koordlet_node_priority_resource_reclaimable", {**of, "resource": resource, "unit": unit}, size)
    yield Gauge("koordlet_node_resource_priority_reclaimable_status", of, 0 if known else 1)


def suppressed(policy: str, limits: tuple[frozenset[int], int] | None) -> Iterator[Gauge]:
    """Yields the CPU that best effort may use.

    Args:
        policy: the policy that suppresses it.
        limits: its CPUs and its quota; None while it has no cgroup.
    """
    if limits is None:
        return
    cpus_allowed, quota_us = limits
    if policy == CPUSET:
        yield Gauge("koordlet_be_suppress_cpu_cores", {"type": policy}, len(cpus_allowed))
    elif quota_us >= 0:
        yield Gauge("koordlet_be_suppress_cpu_cores", {"type": policy}, quota_us / PERIOD_US)


def suppress_usage(found: UsageSnapshot, best_effort: frozenset[str]) -> Iterator[Gauge]:
    """Yields the cpu used by best effort, and by all other pods.

    Args:
        best_effort: uids of best-effort pods.
    """
    others = sum(usage.cpu for uid, usage in found.pods.items() if usage.cpu and uid not in best_effort)
    yield Gauge("koordlet_be_suppress_ls_used_cpu_cores", {}, others / MICRO)
    if found.best_effort is not None and found.best_effort.cpu is not None:
        yield Gauge("koordlet_be_suppress_be_used_cpu_cores", {}, found.best_effort.cpu / MICRO)


def scaled_quotas(executor: Executor, pods: Iterable[PodCgroups]) -> Iterator[Gauge]:
    """Yields quotas that CPU burst has raised, and burst buffers, by container.

    Args:
        pods: those under CPU burst.
    """
    for each in pods:
        for container in each.pod.spec.containers:
            cid = each.node_pod.ids.get(container.name)
            base = quota(limit_milli(container))
            if cid is None or base <= 0:
                continue
            labels = each.labels_of(container.name)
            del labels["pod_uid"]  # koordlet's series have no such label
            now = executor.cached_value(QUOTA, each.containers[cid])
            if now is not None and int(now) > base:
                yield Gauge("koordlet_container_scaled_cfs_quota_us", labels, int(now))
            saved = executor.cached_value(BUFFER, each.containers[cid])
            if saved is not None and int(saved) > 0:
                yield Gauge("koordlet_container_scaled_cfs_burst_us", labels, int(saved))


def oom_scores(pods: Iterable[PodCgroups]) -> Iterator[Gauge]:
    """Yields the OOM scores of pods' annotations by container."""
    for each in pods:
        for name in each.node_pod.ids:
            if (score := oom_score_from_annotations.score(each.pod.metadata.annotations, name)) is not None:
                labels = {**each.labels, "container_name": name}
                yield Gauge("koordlet_container_oom_score_adj", labels, score)


def _amounts(quantities: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, size in quantities.items():
        if name in UNITS:
            with contextlib.suppress(BadQuantity):
                yield name, value(nanos(size))
