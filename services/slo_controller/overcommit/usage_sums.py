"""Sums of requests and usage on a node: its pods joined with their measured usage.

Source: spec/slo-controller.md 4.2, 4.7, 5.1; upstream
pkg/slo-controller/noderesource/plugins/{batchresource,midresource}.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from services.slo_controller.state.usage_report import UsageReport
from shared.domain.cpu_memory import ZERO, Amount
from shared.domain.pod_requests import pod_requests
from shared.domain.priority import Priority, priority
from shared.domain.qos import QoS, qos
from shared.kube.json_text import decode_with
from shared.kube.pod import Pod
from shared.kube.system_annotations import RESOURCE_STATUS

LOW = frozenset({Priority.BATCH.value, Priority.FREE.value})
_PROD = frozenset({Priority.PROD.value, Priority.NONE.value})
_LSE = QoS.LSE.value


_EXTENDED = tuple(f"kubernetes.io/{band}-{part}" for band in ("batch", "mid") for part in ("cpu", "memory"))


class _NumaNode(msgspec.Struct, frozen=True):
    node: int = 0


class _ResourceStatus(msgspec.Struct, frozen=True, rename="camel"):
    numa_node_resources: tuple[_NumaNode, ...] | None = None


_resource_status = msgspec.json.Decoder(_ResourceStatus)


class PodDemand(NamedTuple):
    """The fields of a pod that the sums depend on, besides its name. Pods of one workload share it.

    Attributes:
        numa: the NUMA nodes in its annotation, in their order; None when the annotation cannot be read.
        overcommitted: requested batch-cpu, batch-memory, mid-cpu and mid-memory, in nanos.
    """

    request: Amount
    priority: str
    qos: str
    numa: tuple[int, ...] | None = None
    overcommitted: tuple[int, ...] = ()


class CountedPod(msgspec.Struct, eq=False, gc=False):
    """A live pod as it is counted on its node.

    Attributes:
        key: `namespace/name`, by which reports name it.
    """

    key: str
    demand: PodDemand


def pod_demand(pod: Pod) -> PodDemand:
    """Reads the demand of a pod."""
    requests = pod_requests(pod)
    return PodDemand(
        request=Amount(requests.get("cpu", 0), requests.get("memory", 0)),
        priority=priority(pod).value,
        qos=qos(pod).value,
        numa=zones_of(pod),
        overcommitted=tuple(requests.get(name, 0) for name in _EXTENDED) if any(map(requests.get, _EXTENDED)) else (),
    )


class PodSums(NamedTuple):
    """Sums over high-priority pods: all but batch and free ones."""

    request: Amount = ZERO
    used: Amount = ZERO
    max: Amount = ZERO


class UsageSums(NamedTuple):
    """A node's sums.

    Attributes:
        prod_request: requested by prod pods and by pods without a class.
        zones: the sums of each NUMA zone, in the order of the zones.
        unreported: requested by pods that came after the report: see `unreported_pods`.
    """

    node: PodSums = PodSums()
    prod_request: Amount = ZERO
    zones: tuple[PodSums, ...] = ()
    unreported: Amount = ZERO


def sum_usage(pods: Iterable[CountedPod], report: UsageReport, zones: int = 0) -> UsageSums:
    """Sums up a node.

    An LSE pod counts with its requested cpu, whatever it uses. A pod that was not measured counts with its request, but
    not in the node's sum of maxima (quirk Q1; in its zone's it does). Measured usage of pods that are not live, and
    so not in `pods`, counts by the class in the report, without a request (quirk Q5).

    Args:
        zones: number of NUMA zones of the node; 0 to leave zones out.
    """
    request_cpu = request_memory = used_cpu = used_memory = max_cpu = max_memory = prod_cpu = prod_memory = 0
    each = [_ZoneSums() for _ in range(zones)]
    known = report.pods.by_key()
    seen = set()
    for pod in pods:
        key = pod.key
        (cpu, memory), class_, qos_, _, _ = pod.demand
        found = known.get(key)
        if found is not None:
            seen.add(key)
        if class_ in _PROD:
            prod_cpu += cpu
            prod_memory += memory
        elif class_ in LOW:
            continue
        request_cpu += cpu
        request_memory += memory
        if found is None:
            used_cpu += cpu
            used_memory += memory
        else:
            cpu_used, memory_used, _ = found
            used_cpu += cpu if qos_ == _LSE else cpu_used
            used_memory += memory_used
            max_cpu += max(cpu_used, cpu)
            max_memory += max(memory_used, memory)
        if zones:
            _split(each, pod.demand, None if found is None else Amount(found[0], found[1]))
    if len(seen) == len(known):
        known = {}  # the report has no pods beside the live ones
    for key, (cpu_used, memory_used, class_) in known.items():
        if key in seen or class_ in LOW:
            continue
        used_cpu += cpu_used
        used_memory += memory_used
        max_cpu += cpu_used
        max_memory += memory_used
        if zones:
            part = Amount(cpu_used, memory_used).divided(zones)
            for zone in each:
                zone.used = zone.used.plus(part)
                zone.max = zone.max.plus(part)
    return UsageSums(
        PodSums(Amount(request_cpu, request_memory), Amount(used_cpu, used_memory), Amount(max_cpu, max_memory)),
        Amount(prod_cpu, prod_memory),
        tuple(PodSums(zone.request, zone.used, zone.max) for zone in each),
    )


class _ZoneSums:
    __slots__ = ("max", "request", "used")

    def __init__(self) -> None:
        self.request = self.used = self.max = ZERO


def _split(zones: Sequence[_ZoneSums], pod: PodDemand, usage: Amount | None) -> None:
    """Divides a pod among the zones that it is bound to, else among all. A zone listed twice divides by two (quirk Q16)."""
    count = len(zones)
    valid = [zone for zone in pod.numa or () if 0 <= zone < count]
    parts = len(valid) or count
    request = pod.request.divided(parts)
    part = None if usage is None else usage.divided(parts)
    for index in sorted(set(valid)) or range(count):
        zone = zones[index]
        zone.request = zone.request.plus(request)
        if part is None:
            zone.used = zone.used.plus(request)
            zone.max = zone.max.plus(request)
        else:
            used = Amount(request.cpu, part.memory) if pod.qos == QoS.LSE else part
            zone.used = zone.used.plus(used)
            zone.max = zone.max.plus(request.largest(part))


def zones_of(pod: Pod) -> tuple[int, ...] | None:
    """Returns the NUMA nodes in a pod's annotation, in their order; None when it cannot be read."""
    text = (pod.metadata.annotations or {}).get(RESOURCE_STATUS)
    if not text:
        return ()
    try:
        return tuple(each.node for each in decode_with(_resource_status, text).numa_node_resources or ())
    except msgspec.DecodeError:
        return None
