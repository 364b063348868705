"""CPU burst: a throttled container may exceed its limit for a while, if the node has spare cpu.

Source: spec/node-agent.md 3.4.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from services.node_agent.cgroup.cpu_conversions import quota
from services.node_agent.qos_manager.strategies.pod_containers import NodePod, is_active
from shared.domain.pod_requests import pod_requests
from shared.domain.qos import QoS, raw_qos
from shared.kube.instants import SECOND
from shared.kube.json_text import read_json
from shared.kube.pod import Container, Pod
from shared.kube.quantity import milli, nanos
from shared.kube.slo_config import CpuBurst

ANNOTATION = "koordinator.sh/cpuBurst"
_BUFFERED = frozenset(("auto", "cpuBurstOnly"))
_SCALED = frozenset(("auto", "cfsQuotaBurstOnly"))
_LEFT_ALONE = frozenset((QoS.LSE, QoS.LSR, QoS.BE))
_UP, _DOWN = 1.2, 0.8
COOLING = 0.9
"""From this part of the threshold on, no quota is raised any more."""


class NodeState(Enum):
    """Load of the CPUs that pods share."""

    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"


class Limiter(NamedTuple):
    """A token bucket of CPU percent x seconds that a container may use beyond its limit.

    Attributes:
        capacity, token: percent x seconds; the token lies within +-capacity.
        at_ns: last update.
        keep_ns: it is dropped this long after its last update.
    """

    capacity: int
    token: int
    at_ns: int
    keep_ns: int

    @property
    def allows(self) -> bool:
        """Reports whether the container may exceed its limit."""
        return self.token > 0

    def spent(self, percent: int, now_ns: int) -> "Limiter":
        """Returns the bucket after an interval at a usage of so many percent of the limit."""
        seconds = (now_ns - self.at_ns) // SECOND
        token = self.token
        if percent >= 100:
            token -= (percent - 100) * seconds
        elif percent < 60:
            token += (100 - percent) * seconds
        return self._replace(token=max(-self.capacity, min(token, self.capacity)), at_ns=now_ns)


class CurrentLimits(NamedTuple):
    """Present values of a container's or a pod's cgroup: microseconds a period; None where it cannot be read."""

    quota_us: int | None
    burst_us: int | None


class Measured(NamedTuple):
    """Newest measurements of a container; None without a sample.

    Attributes:
        throttled: the part of periods in which it was throttled.
        cores: its usage.
    """

    throttled: float | None
    cores: float | None


class PodAnnotation(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's annotation: as CpuBurst, without its bounds, which upstream does not check in pods."""

    policy: str = ""
    cpu_burst_percent: int | None = None
    cfs_quota_burst_percent: int | None = None
    cfs_quota_burst_period_seconds: int | None = None
    share_pool_threshold_percent: int | None = None


class PodBurst(NamedTuple):
    """Desired values of a pod and its containers; containers by id. None leaves a file.

    Attributes:
        grows: containers whose quota grows; the pod's quota is written before these.
    """

    uid: str
    burst_us: int
    containers_burst_us: dict[str, int]
    quota_us: int | None
    containers_quota_us: dict[str, int]
    grows: frozenset[str]


def config_of(strategy: CpuBurst, pod: Pod) -> CpuBurst:
    """Returns the node's strategy, overlaid by the pod's annotation."""
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if not text:
        return strategy
    try:
        own: PodAnnotation = read_json(text, PodAnnotation)
    except msgspec.MsgspecError:
        return strategy
    fields = {name: got for name in PodAnnotation.__struct_fields__ if (got := getattr(own, name)) not in {None, ""}}
    return msgspec.structs.replace(strategy, **fields)


def node_state(
    threshold_percent: int | None,
    processors: int | None,
    node_cores: float | None,
    pod_cores: Mapping[str, float],
    pods: Iterable[Pod],
) -> NodeState:
    """Returns the load of the shared CPUs: all but those that LSE and LSR pods request. System usage counts.

    Args:
        processors: None when their number is unknown.
        node_cores, pod_cores: means over the window; pods by uid.
    """
    if processors is None or node_cores is None or threshold_percent is None:
        return NodeState.UNKNOWN
    total, used = float(processors), node_cores
    for pod in pods:
        qos = raw_qos(pod)
        if qos in {QoS.LSE, QoS.LSR}:
            total -= milli(pod_requests(pod).get("cpu", 0)) / 1000
        if qos in _LEFT_ALONE:
            used -= pod_cores.get(pod.metadata.uid, 0.0)
    ratio = used / total if total > 0 else 1.0
    threshold = threshold_percent / 100
    if ratio >= threshold:
        return NodeState.OVERLOAD
    return NodeState.COOLING if ratio >= threshold * COOLING else NodeState.IDLE


def applies(pod: Pod) -> bool:
    """Reports whether CPU burst applies to a pod."""
    return is_active(pod) and raw_qos(pod) not in _LEFT_ALONE


def limit_milli(container: Container) -> int:
    """Returns a container's cpu limit in milli-cores; 0 without one."""
    limits = (container.resources and container.resources.limits) or {}
    return milli(nanos(limits["cpu"])) if "cpu" in limits else 0


class BurstLimiters:
    """Limiters of a node's containers, and the decision of a cycle.

    Attributes:
        limiters: id of a container -> its bucket.
    """

    def __init__(self, new_token: Callable[[str, int], int]) -> None:
        """Makes an instance without limiters.

        Args:
            new_token: (id, capacity) -> initial token of a bucket.
        """
        self.limiters: dict[str, Limiter] = {}
        self._new_token = new_token

    def decide(
        self,
        each: NodePod,
        strategy: CpuBurst,
        state: NodeState,
        current: Callable[[str], CurrentLimits],
        measured: Callable[[str], Measured],
        now_ns: int,
    ) -> PodBurst:
        """Decides on one pod in one cycle.

        Args:
            current: id of a container, or empty for the pod -> present values of its cgroup.
            measured: id of a container -> its newest measurements.
        """
        config = config_of(strategy, each.pod)
        bursts = {
            cid: _buffer(config, container)
            for container in each.pod.spec.containers
            if (cid := each.ids.get(container.name)) is not None
        }
        pod_quota = current("").quota_us
        quotas: dict[str, int] = {}
        grows: set[str] = set()
        desired_pod = pod_quota
        for container in each.pod.spec.containers:
            cid = each.ids.get(container.name)
            if cid is None or container.name not in each.running:
                continue
            base = quota(limit_milli(container))
            now_us = current(cid).quota_us
            if base <= 0 or now_us is None:
                continue
            target = self._target(config, cid, limit_milli(container), now_us, state, measured(cid), now_ns)
            if target == now_us:
                continue
            quotas[cid] = target
            if target > now_us:
                grows.add(cid)
            if desired_pod is not None and desired_pod > 0:
                desired_pod += target - now_us
        changed = desired_pod if desired_pod != pod_quota else None
        return PodBurst(each.pod.metadata.uid, sum(bursts.values()), bursts, changed, quotas, frozenset(grows))

    def forget_idle(self, now_ns: int) -> None:
        """Drops the buckets of containers that are gone."""
        for cid in [cid for cid, one in self.limiters.items() if now_ns - one.at_ns > one.keep_ns]:
            del self.limiters[cid]

    def _target(
        self, config: CpuBurst, cid: str, limit: int, now_us: int, state: NodeState, measured: Measured, now_ns: int
    ) -> int:
        base = quota(limit)
        percent = config.cfs_quota_burst_percent
        most = int(base * percent / 100) if percent is not None and percent > 100 else base
        allowed = self._allowed(config, cid, limit, measured.cores, now_ns)
        if config.policy not in _SCALED:
            return base
        if not allowed:
            factor = _DOWN
        elif measured.throttled is not None and measured.throttled > 0:
            factor = _UP
        else:
            factor = 1.0
        if state is NodeState.OVERLOAD:
            factor = _DOWN
        elif factor == _UP and state in {NodeState.COOLING, NodeState.UNKNOWN}:
            factor = 1.0
        return max(base, min(int(now_us * factor), most))

    def _allowed(self, config: CpuBurst, cid: str, limit: int, cores: float | None, now_ns: int) -> bool:
        period, percent = config.cfs_quota_burst_period_seconds, config.cfs_quota_burst_percent
        if period is None or period < 0:
            return True
        if percent is None or percent < 100:
            return False
        capacity, keep_ns = period * (percent - 100), 2 * period * SECOND
        limiter = self.limiters.get(cid)
        if limiter is None or limiter.capacity != capacity:
            limiter = Limiter(capacity, self._new_token(cid, capacity), now_ns, keep_ns)
        used = 100 if cores is None else int(cores * 1000 / limit * 100)
        self.limiters[cid] = limiter.spent(used, now_ns)
        return self.limiters[cid].allows


def _buffer(config: CpuBurst, container: Container) -> int:
    """Returns a container's burst buffer in microseconds: so many percent of its limit over one period."""
    if config.policy not in _BUFFERED:
        return 0
    return limit_milli(container) * (config.cpu_burst_percent or 0)
