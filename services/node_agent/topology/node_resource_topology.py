"""Builds the content of the node's NodeResourceTopology: CPUs, share pools, NUMA zones. Pure.

Source: spec/node-agent.md 7.2; upstream pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from services.node_agent.qos_manager.strategies.cpu_selection import Processor
from services.node_agent.states_informer.annotations import ReservedCpus, cpus, mapping, pod_cpus, reserved_nanos
from services.node_agent.topology.cpu_model_and_zone_memory import HUGE, BasicInfo, Hardware
from services.node_agent.topology.kubelet_cpu_manager import KubeletConfig
from shared.agents.actions import TopologyReported, ZoneReported
from shared.domain.cpu_set import cpu_list
from shared.domain.qos import QoS, raw_qos
from shared.kube import node_resource_topology as names
from shared.kube.node import Node
from shared.kube.pod import Pod
from shared.kube.quantity import NANO, BadQuantity, nanos
from shared.kube.quantity_text import Notation, quantity_text

_POLICIES = {"best-effort": "BestEffort", "restricted": "Restricted", "single-numa-node": "SingleNUMANode"}
_SCOPES = {"container": "ContainerLevel", "pod": "PodLevel"}


class Kubelet(NamedTuple):
    """Settings and assignments of the kubelet's CPU manager.

    Attributes:
        config: None without a configuration file.
        given: uid of a pod -> container -> CPUs of its own.
    """

    config: KubeletConfig | None
    given: Mapping[str, Mapping[str, str]]


def topology_report(
    hardware: Hardware, kubelet: Kubelet, node: Node, pods: Iterable[Pod], *, huge_pages: bool
) -> TopologyReported | None:
    """Returns the report; None where CPUs and memory disagree about the zones, so that nothing can be reported.

    Args:
        node: reduced to the annotations of our domains.
        huge_pages: count huge pages apart from memory (gate HugePageReport).
    """
    zones = sorted({each.node for each in hardware.processors})
    if not zones or zones != sorted(hardware.memory) or zones != list(range(len(zones))):
        return None
    annotations = node.metadata.annotations or {}
    config, pods = kubelet.config, tuple(pods)
    by_kubelet = _given(kubelet, pods)
    reservation = _reservation(annotations, hardware.processors)
    notes: dict[str, Any] = {
        names.CPU_BASIC_INFO: _basic(hardware.basic),
        names.CPU_TOPOLOGY: {"detail": _detail(hardware.processors)},
        names.CPU_MANAGER_POLICY: {} if config is None else _manager(config, hardware.processors),
        names.POD_CPU_ALLOCS: by_kubelet or None,
        names.RESERVATION: reservation,
        names.SYSTEM_QOS: mapping(annotations, names.SYSTEM_QOS) or None,
    }
    taken = frozenset[int]().union(*(cpus(each["cpuset"]) for each in by_kubelet))
    taken |= cpus(reservation.get("reservedCPUs")) | ReservedCpus.of(annotations).system
    given = {pod.metadata.uid: pod_cpus(pod) for pod in pods}
    alone = (given[pod.metadata.uid] for pod in pods if raw_qos(pod) is QoS.LSE)
    for name, of_pods in ((names.SHARED_POOLS, given.values()), (names.BE_SHARED_POOLS, alone)):
        notes[name] = _pools(hardware.processors, taken.union(*of_pods))
    return TopologyReported(
        {name: msgspec.json.encode(note).decode() for name, note in sorted(notes.items())},
        _policy(config),
        tuple(_zones(hardware, node, huge_pages=huge_pages)),
        (node.metadata.labels or {}).get(names.NUMA_RESERVATION, ""),
    )


def _basic(basic: BasicInfo) -> dict[str, Any]:
    found = {
        "cpuModel": basic.model,
        "hyperThreadEnabled": basic.hyper_threads,
        "turboEnabled": basic.turbo,
        "catL3CbmMask": basic.cache_mask,
        "vendorID": basic.vendor,
    }
    return {name: value for name, value in found.items() if value}


def _detail(processors: Iterable[Processor]) -> list[dict[str, int]]:
    """Returns cores numbered over all sockets, in the order of their first CPU."""
    cores: dict[int, int] = {}
    return [
        {"id": each.cpu, "core": cores.setdefault(each.core, len(cores)), "socket": each.socket, "node": each.node}
        for each in sorted(processors)
    ]


def _manager(config: KubeletConfig, processors: Iterable[Processor]) -> dict[str, Any]:
    found: dict[str, Any] = {"policy": config.policy} | ({"options": config.options} if config.options else {})
    if config.policy == "static":
        reserved = cpus(config.reserved_cpus) or whole_cores_first(config.reserved_count, processors)
        found |= {"reservedCPUs": cpu_list(reserved)} if reserved else {}
    return found


def _given(kubelet: Kubelet, pods: Iterable[Pod]) -> list[dict[str, Any]]:
    """Returns the CPUs that the kubelet assigned, by pod, without pods whose CPUs this system allocates."""
    if kubelet.config is None or kubelet.config.policy != "static":
        return []
    known = {pod.metadata.uid: pod for pod in pods}
    ours = {uid for uid, pod in known.items() if raw_qos(pod) in {QoS.LS, QoS.BE} or pod_cpus(pod)}
    found = []
    for uid, containers in sorted(kubelet.given.items()):
        reserved = frozenset[int]().union(*map(cpus, containers.values()))
        if reserved and uid not in ours:
            meta = known[uid].metadata if uid in known else None
            name = {"namespace": meta.namespace, "name": meta.name} if meta is not None else {}
            found.append({**name, "uid": uid, "cpuset": cpu_list(reserved), "managedByKubelet": True})
    return found


def _reservation(annotations: Mapping[str, str], processors: Iterable[Processor]) -> dict[str, Any]:
    """Returns the node's own reservation, with an amount of cpu turned into CPUs."""
    found = mapping(annotations, names.RESERVATION)
    reserved = cpus(found.get("reservedCPUs")) or whole_cores_first(-(-reserved_nanos(annotations) // NANO), processors)
    return found | ({"reservedCPUs": cpu_list(reserved)} if reserved else {})


def whole_cores_first(count: int, processors: Iterable[Processor]) -> frozenset[int]:
    """Returns so many CPUs, whole cores first, in the order of sockets and cores; all of them where there are fewer."""
    cores: dict[tuple[int, int], list[int]] = {}
    for each in sorted(processors, key=lambda each: (each.socket, each.core, each.cpu)):
        cores.setdefault((each.socket, each.core), []).append(each.cpu)
    taken: set[int] = set()
    for core in cores.values():
        if len(core) <= count - len(taken):
            taken.update(core)
    rest = (cpu for core in cores.values() for cpu in core if cpu not in taken)
    return frozenset(taken.union(cpu for cpu, _ in zip(rest, range(count - len(taken)), strict=False)))


def _pools(processors: Iterable[Processor], taken: frozenset[int]) -> list[dict[str, Any]]:
    pools: dict[tuple[int, int], list[int]] = {}
    for each in processors:
        if each.cpu not in taken:
            pools.setdefault((each.socket, each.node), []).append(each.cpu)
    return [
        {"socket": socket, "node": node, "cpuset": cpu_list(found)} for (socket, node), found in sorted(pools.items())
    ]


def _policy(config: KubeletConfig | None) -> str:
    if config is None or config.topology_policy not in _POLICIES or config.topology_scope not in _SCOPES:
        return "None"
    return _POLICIES[config.topology_policy] + _SCOPES[config.topology_scope]


def _zones(hardware: Hardware, node: Node, *, huge_pages: bool) -> Iterable[ZoneReported]:
    reserved = _reserved(node, len(hardware.memory))
    for zone, memory in sorted(hardware.memory.items()):
        huge = {name: memory.huge[name] if huge_pages else 0 for name in HUGE}
        count = sum(each.node == zone for each in hardware.processors)
        capacity = {"cpu": count * NANO, "memory": (memory.total - sum(huge.values())) * NANO}
        capacity |= {name: size * NANO for name, size in huge.items()}
        yield ZoneReported(
            f"node-{zone}",
            {
                name: (_text(name, size), _text(name, max(size - reserved.get(name, 0), 0)))
                for name, size in sorted(capacity.items())
            },
        )


def _reserved(node: Node, zones: int) -> dict[str, int]:
    """Returns the kubelet's reservation in each zone, in nanos, where the node's label requests it."""
    if (node.metadata.labels or {}).get(names.NUMA_RESERVATION) != "true":
        return {}
    found = {}
    for name, unit in (("cpu", NANO // 1000), ("memory", NANO)):
        try:
            reserved = nanos((node.status.capacity or {})[name]) - nanos((node.status.allocatable or {})[name])
        except (KeyError, BadQuantity):
            continue
        found[name] = max(-(-reserved // (zones * unit)), 0) * unit
    return found


def _text(name: str, size: int) -> str:
    return quantity_text(size, Notation.DECIMAL if name == "cpu" else Notation.BINARY)
