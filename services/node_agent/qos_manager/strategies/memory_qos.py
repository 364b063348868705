"""Memory QoS: protection and reclaim of memory for a class, a pod, a container.

Source: spec/node-agent.md 3.5.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from services.node_agent.cgroup.cpu_conversions import UNLIMITED
from services.node_agent.qos_manager.strategies.pod_containers import NodePod, is_active
from shared.domain.pod_requests import pod_limits, pod_requests
from shared.domain.qos import QoS, kubernetes_qos, qos
from shared.domain.slo_defaults import DEFAULT_QOS, OFF_MEMORY
from shared.kube.json_text import read_json
from shared.kube.pod import Container, Pod
from shared.kube.quantity import nanos, value
from shared.kube.slo_config import MemoryQos, QosClass, ResourceQos

ANNOTATION = "koordinator.sh/memoryQOS"
BATCH_MEMORY = "kubernetes.io/batch-memory"

Values = dict[str, int]
"""Knob -> value."""


class MemoryQosValues(NamedTuple):
    """Desired values of each level.

    Attributes:
        kube: by Kubernetes class; Guaranteed is the cgroup of all pods.
        pods: by uid.
        containers: by id.
    """

    kube: dict[str, Values]
    pods: dict[str, Values]
    containers: dict[str, Values]


class _PodAnnotation(MemoryQos, frozen=True):
    """A pod's annotation."""

    policy: str = ""


def desired_values(
    strategy: ResourceQos, pods: Iterable[NodePod], allocatable: int, page: int, version: int
) -> MemoryQosValues:
    """Returns the values of all levels.

    Args:
        strategy: merged with the defaults.
        allocatable: the node's memory in bytes, which counts as the limit of containers without one.
        page: the size of a page in bytes.
        version: of cgroups; v1 has no limit of the page cache.
    """
    found = MemoryQosValues({}, {}, {})
    protected: dict[str, list[int]] = {}
    for each in pods:
        pod = each.pod
        config = config_of(strategy, pod)
        if config is None or not is_active(pod):
            continue
        request = _pod_amount(pod, "requests")
        own = _protected(config, request)
        sums = protected.setdefault(kubernetes_qos(pod), [0, 0])
        for number, percent in enumerate((config.min_limit_percent, config.low_limit_percent)):
            sums[number] += request * (percent or 0) // 100
        found.pods[pod.metadata.uid] = own | _watermarks(config)
        if version == 2:
            found.pods[pod.metadata.uid] |= _page_cache(config, _pod_amount(pod, "limits"))
        for container in pod.spec.containers:
            if (cid := each.ids.get(container.name)) is not None:
                found.containers[cid] = _container(config, pod, container, allocatable, page)
    for kube_qos, qos_class in (
        ("Guaranteed", strategy.lsr_class),
        ("Burstable", strategy.ls_class),
        ("BestEffort", strategy.be_class),
    ):
        values: Values = {}
        if kept := [own for inner, own in protected.items() if kube_qos in {inner, "Guaranteed"}]:
            values["memory.min"], values["memory.low"] = map(sum, zip(*kept, strict=True))
        if qos_class is not None and qos_class.memory_qos is not None:
            values |= _kill_order(qos_class.memory_qos)
        found.kube[kube_qos] = values
    return found


def config_of(strategy: ResourceQos, pod: Pod) -> MemoryQos | None:
    """Returns a pod's configuration: its class's, overlaid by its annotation; None when its class has none."""
    config = _of_class(strategy, qos(pod))
    own = _annotated(pod)
    if own is None:
        return config
    match own.policy:
        case "none":
            config = OFF_MEMORY
        case "auto":
            config = _of_class(DEFAULT_QOS, qos(pod)) or OFF_MEMORY
    if config is None:
        return None
    fields = {name: got for name in MemoryQos.__struct_fields__ if (got := getattr(own, name)) is not None}
    return msgspec.structs.replace(config, **fields)


def _of_class(strategy: ResourceQos, of: QoS) -> MemoryQos | None:
    """Returns a strategy's configuration of a class; LSE is treated as LSR."""
    qos_class: QosClass | None = {
        QoS.LSE: strategy.lsr_class,
        QoS.LSR: strategy.lsr_class,
        QoS.LS: strategy.ls_class,
        QoS.BE: strategy.be_class,
        QoS.SYSTEM: strategy.system_class,
    }.get(of)
    return qos_class.memory_qos if qos_class else None


def _annotated(pod: Pod) -> _PodAnnotation | None:
    text = (pod.metadata.annotations or {}).get(ANNOTATION)
    if not text:
        return None
    try:
        found: _PodAnnotation = read_json(text, _PodAnnotation)
    except msgspec.MsgspecError:
        return None
    return found


def _protected(config: MemoryQos, request: int) -> Values:
    """Returns `min` and `low` of a request; a low below min is raised to it. Absent settings are not written."""
    values: Values = {}
    if config.min_limit_percent is not None:
        values["memory.min"] = request * config.min_limit_percent // 100
    if config.low_limit_percent is not None:
        low = request * config.low_limit_percent // 100
        values["memory.low"] = max(low, values.get("memory.min", 0)) if low > 0 else low
    return values


def _watermarks(config: MemoryQos) -> Values:
    values = {
        "memory.wmark_ratio": config.wmark_ratio,
        "memory.wmark_scale_factor": config.wmark_scale_permill,
        "memory.wmark_min_adj": config.wmark_min_adj,
    }
    return {knob: value for knob, value in values.items() if value is not None} | _kill_order(config)


def _kill_order(config: MemoryQos) -> Values:
    values = {
        "memory.use_priority_oom": config.priority_enable,
        "memory.priority": config.priority,
        "memory.oom.group": config.oom_kill_group,
    }
    return {knob: value for knob, value in values.items() if value is not None}


def _container(config: MemoryQos, pod: Pod, container: Container, allocatable: int, page: int) -> Values:
    request, limit = (_container_amount(pod, container, which) for which in ("requests", "limits"))
    values = _protected(config, request) | _watermarks(config)
    if config.throttling_percent is not None:
        high = UNLIMITED
        if config.throttling_percent > 0:
            bound = limit if limit > 0 else allocatable
            high = (request + (bound - request) * config.throttling_percent // 100) // page * page
        if 0 < high < values.get("memory.min", 0):
            high = values["memory.min"]
        values["memory.high"] = high
    return values


def _page_cache(config: MemoryQos, limit: int) -> Values:
    """Returns the page-cache limit of a pod (Anolis kernels with cgroup v2)."""
    size: int | None = None
    if config.page_cache_limit_size is not None:
        size = min(config.page_cache_limit_size, limit) if limit > 0 else config.page_cache_limit_size
    elif config.page_cache_limit_percent is not None and limit > 0:
        size = limit * config.page_cache_limit_percent // 100
    values: Values = {}
    if size is not None:
        values = {"memory.pagecache_limit.size": size, "memory.pagecache_limit.enable": int(size > 0)}
        if size > 0:
            values["memory.pagecache_limit.sync"] = int(bool(config.page_cache_reclaim_sync))
    if config.page_cache_enable is not None:
        values["memory.pagecache_limit.enable"] = int(config.page_cache_enable)
    return values


Which = Literal["requests", "limits"]


def _pod_amount(pod: Pod, which: Which) -> int:
    """Returns a pod's request or limit in bytes; 0 without a limit.

    A BE pod's are of batch memory, sidecars included.
    """
    if qos(pod) is not QoS.BE:
        if which == "limits" and not any(_amounts(each, which).get("memory") for each in pod.spec.containers):
            return 0
        return value((pod_requests if which == "requests" else pod_limits)(pod).get("memory", 0))
    running = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    amounts = [_amount(_amounts(each, which).get(BATCH_MEMORY)) for each in running]
    if which == "limits" and 0 in amounts:
        return 0
    return sum(amounts)


def _container_amount(pod: Pod, container: Container, which: Which) -> int:
    return _amount(_amounts(container, which).get(BATCH_MEMORY if qos(pod) is QoS.BE else "memory"))


def _amounts(container: Container, which: Which) -> Mapping[str, Any]:
    return (container.resources and getattr(container.resources, which)) or {}


def _amount(text: str | None) -> int:
    return value(nanos(text)) if text else 0
