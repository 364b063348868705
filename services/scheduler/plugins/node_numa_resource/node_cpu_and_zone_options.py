"""Options of a node: its CPUs and NUMA zones, its policies, and its reserved CPUs.

Sources are the NodeResourceTopology that the node agent reports, and labels and annotations of the node. An unreadable
part is left out and listed in `problems`; it ends no cycle.

Source: spec/scheduler-core.md 4.2; upstream
pkg/scheduler/plugins/nodenumaresource/{topology_options,topology_eventhandler}.go.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from services.scheduler.plugins.node_numa_resource import policy_names
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import (
    BadRatios,
    Ratios,
    amplified,
    read_ratios,
)
from services.scheduler.plugins.node_numa_resource.cpu_topology import CpuTopology
from services.scheduler.plugins.node_numa_resource.node_usage import Amounts
from shared.domain.cpu_set import BadCpuList, parse_cpus
from shared.kube.json_text import read_json
from shared.kube.node import Node
from shared.kube.node_resource_topology import NodeResourceTopology
from shared.kube.quantity import BadQuantity, amount, nanos
from shared.type_error_words import field_fault, unreadable_annotation

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
POD_CPU_ALLOCS = "node.koordinator.sh/pod-cpu-allocs"
CPU_MANAGER = "kubelet.koordinator.sh/cpu-manager-policy"
SYSTEM_QOS = "node.koordinator.sh/system-qos-resource"
RESERVATION = "node.koordinator.sh/reservation"
BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
NUMA_POLICY = "node.koordinator.sh/numa-topology-policy"
_KNOWN_VALUES = {
    BIND_POLICY: (policy_names.NODE_FULL_CORES, policy_names.NODE_SPREAD, policy_names.NODE_NONE),
    ALLOCATE_STRATEGY: (policy_names.MOST, policy_names.LEAST),
}
"""Label of a node -> the values that have a meaning."""

MOST_CPUS = 1 << 16
"""Upper bound of CPU numbers: a typing error must not cost memory."""

_REPORTED_POLICIES = {
    "BestEffort": policy_names.BEST_EFFORT,
    "Restricted": policy_names.RESTRICTED,
    "SingleNUMANodePodLevel": policy_names.SINGLE_NUMA,
}
_NO_CPUS = CpuTopology()
_NO_RATIOS: Ratios = MappingProxyType({})
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}").fullmatch


class Zone(NamedTuple):
    """A NUMA node: its number, and its allocatable amounts."""

    numa: int
    total: Amounts


class NodeOptions(NamedTuple):
    """Options of a node.

    Attributes:
        known: the node has a NodeResourceTopology.
        topology: its CPUs; none when they are not reported or cannot be read.
        reserved: CPUs that are never allocated.
        zones: NUMA nodes by number, reserved CPUs taken off, amplified.
        reported: zones before this scheduler amplified them.
        ratios: the factors of the amounts of zones, applied by the reporter or by this scheduler.
        reported_ratios: ratios of the NodeResourceTopology.
        node_ratios: ratios of the node; its allocatable is amplified by these.
        reported_policy: NUMA policy that the NodeResourceTopology names.
        numa_policy: the node's: its label's, else the reported one.
        bind_policy: None, FullPCPUsOnly or SpreadByPCPUs.
        strategy: order in which NUMA nodes are allocated; empty where the node names none.
        problems: unreadable parts.
    """

    known: bool = False
    topology: CpuTopology = _NO_CPUS
    reserved: frozenset[int] = frozenset()
    zones: tuple[Zone, ...] = ()
    reported: tuple[Zone, ...] = ()
    ratios: Ratios = _NO_RATIOS
    reported_ratios: Ratios = _NO_RATIOS
    node_ratios: Ratios = _NO_RATIOS
    reported_policy: str = ""
    numa_policy: str = ""
    bind_policy: str = policy_names.NODE_NONE
    strategy: str = ""
    problems: tuple[str, ...] = ()


def node_options(node: Node | None, reported: NodeResourceTopology | None) -> NodeOptions:
    """Computes the options of a node from its object and its NodeResourceTopology; either may be missing."""
    problems: list[str] = []
    labels = (node.metadata.labels if node else None) or {}
    try:
        node_ratios = read_ratios(node.metadata.annotations if node else None)
    except BadRatios as error:
        node_ratios = {}
        problems.append(f"node: {error}")
    label_policy = labels.get(NUMA_POLICY, "")
    strategy = labels.get(ALLOCATE_STRATEGY, "")
    options = NodeOptions(
        node_ratios=node_ratios,
        numa_policy=label_policy,
        bind_policy=_bind_policy(labels, {}),
        strategy=strategy,
        problems=tuple(problems),
    )
    if reported is None:
        return options
    notes = reported.metadata.annotations or {}
    manager = _read_json(notes, CPU_MANAGER, dict, problems)
    topology, problem = _topology(notes.get(CPU_TOPOLOGY, ""))
    if problem:
        problems.append(problem)
    reserved = _reserved(notes, manager, problems)
    zones = _zones(reported, topology, reserved)
    reported_policy = next((_REPORTED_POLICIES[p] for p in reported.topology_policies if p in _REPORTED_POLICIES), "")
    try:
        reported_ratios = read_ratios(notes)
    except BadRatios as error:
        reported_ratios = {}
        problems.append(str(error))
    ratios = reported_ratios or node_ratios
    return options._replace(
        known=True,
        topology=topology,
        reserved=reserved,
        reported=zones,
        zones=zones if reported_ratios else tuple(_amplified(zone, node_ratios) for zone in zones),
        ratios=ratios,
        reported_ratios=reported_ratios,
        reported_policy=reported_policy,
        numa_policy=label_policy or reported_policy,
        bind_policy=_bind_policy(labels, manager),
        problems=tuple(problems),
    )


def ignored_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Yields the labels of a node whose value is unknown, with what counts instead."""
    for name, known in _KNOWN_VALUES.items():
        if (value := labels.get(name, "")) not in ("", *known):
            yield f"label {name} is {value!r} and counts as none; give one of {', '.join(known)}"


def closing_label(labels: Mapping[str, str]) -> str:
    """Returns why a label of a node keeps pods from it; empty where none does."""
    policy, known = labels.get(NUMA_POLICY, ""), policy_names.NUMA_POLICIES
    if policy in known:
        return ""
    return (
        f"label {NUMA_POLICY} is {policy!r}, and NodeNUMAResource rejects the node; give one of {', '.join(known[1:])}"
    )


def _bind_policy(labels: Mapping[str, str], manager: Mapping[str, Any]) -> str:
    labelled = labels.get(BIND_POLICY, "")
    options = manager.get("options")
    full = isinstance(options, dict) and options.get("full-pcpus-only") == "true"
    if labelled == policy_names.NODE_FULL_CORES or (manager.get("policy") == "static" and full):
        return policy_names.NODE_FULL_CORES
    return policy_names.NODE_SPREAD if labelled == policy_names.NODE_SPREAD else policy_names.NODE_NONE


class _Detail(msgspec.Struct, frozen=True):
    id: int = 0
    core: int = 0
    socket: int = 0
    node: int = 0


class _CpuTopology(msgspec.Struct, frozen=True):
    detail: tuple[_Detail, ...] | None = None


@lru_cache(maxsize=256)
def _topology(text: str) -> tuple[CpuTopology, str]:
    """The topology and the problem of the text, if any; machines of one model share one object."""
    if not text:
        return _NO_CPUS, ""
    try:
        detail = read_json(text, _CpuTopology).detail or ()
    except msgspec.MsgspecError as error:
        return _NO_CPUS, unreadable_annotation(CPU_TOPOLOGY, field_fault(error))
    if any(not 0 <= number < MOST_CPUS for cpu in detail for number in (cpu.id, cpu.core, cpu.socket, cpu.node)):
        return _NO_CPUS, f"{CPU_TOPOLOGY}: a number outside of 0 to {MOST_CPUS - 1}"
    return CpuTopology((cpu.id, cpu.core, cpu.socket, cpu.node) for cpu in detail), ""


def _reserved(notes: Mapping[str, str], manager: Mapping[str, Any], problems: list[str]) -> frozenset[int]:
    """CPUs of kubelet's own pods, of kubelet's reservation, of the node's reservation, and of system QoS."""
    reserved: set[int] = set()
    for entry in _read_json(notes, POD_CPU_ALLOCS, list, problems):
        if isinstance(entry, dict) and entry.get("managedByKubelet") and entry.get("uid"):
            reserved |= _read_cpus(entry.get("cpuset"), POD_CPU_ALLOCS, problems)
    reserved |= _read_cpus(manager.get("reservedCPUs"), CPU_MANAGER, problems)
    held_back = _read_json(notes, RESERVATION, dict, problems)
    reserved |= _read_cpus(held_back.get("reservedCPUs"), RESERVATION, problems)
    system = _read_json(notes, SYSTEM_QOS, dict, problems)
    if system.get("cpusetExclusive") is not False:
        reserved |= _read_cpus(system.get("cpuset"), SYSTEM_QOS, problems)
    return frozenset(reserved)


def _zones(reported: NodeResourceTopology, topology: CpuTopology, reserved: frozenset[int]) -> tuple[Zone, ...]:
    zones = []
    for zone in reported.zones:
        parts = zone.name.split("node-")
        if zone.type != "Node" or len(parts) != 2 or not _NUMBER(parts[1]):
            continue
        numa = int(parts[1])
        total = {resource.name: _amount(resource.name, resource.allocatable) for resource in zone.resources}
        taken = sum(1 for cpu in reserved if cpu in topology.cpus and topology.cpus[cpu].numa == numa)
        if taken and total.get("cpu"):
            total["cpu"] -= 1000 * taken
        zones.append(Zone(numa, total))
    return tuple(sorted(zones, key=lambda zone: zone.numa))


def _amplified(zone: Zone, ratios: Ratios) -> Zone:
    return Zone(zone.numa, {name: amplified(size, ratios.get(name, 1)) for name, size in zone.total.items()})


def _amount(resource: str, text: str) -> int:
    try:
        return amount(resource, nanos(text))
    except BadQuantity:
        return 0


def _read_json(notes: Mapping[str, str], name: str, kind: type[Any], problems: list[str]) -> Any:
    text = notes.get(name)
    if not text:
        return kind()
    try:
        return read_json(text, kind)
    except msgspec.MsgspecError as error:
        problems.append(unreadable_annotation(name, field_fault(error)))
        return kind()


def _read_cpus(text: Any, name: str, problems: list[str]) -> frozenset[int]:
    try:
        return parse_cpus(text) if isinstance(text, str) else frozenset()
    except BadCpuList as error:
        problems.append(f"{name}: {error}")
        return frozenset()
