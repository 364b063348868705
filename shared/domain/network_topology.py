"""The network of a cluster as layers of domains, and how a gang wishes to gather in them.

A ClusterNetworkTopology names the layers between the whole cluster and a node, and the node labels whose values name a
node's domain in each layer. The annotation of a gang names the layers of which one domain has to hold all its pods.
Source: spec/scheduler-workloads.md 2.5; spec/api.md 1.10, 2.2.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from shared.errors import KoordError
from shared.kube.meta import KubeStruct
from shared.type_error_words import field_fault

OBJECT = "default"
"""Name of the only ClusterNetworkTopology that is read."""

CLUSTER_LAYER, NODE_LAYER = "ClusterTopologyLayer", "NodeTopologyLayer"
MUST_GATHER, PREFER_GATHER = "MustGather", "PreferGather"
STRATEGIES = (MUST_GATHER, PREFER_GATHER)

INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
"""Annotation of a pod: its place among the pods of its gang; neighbours are placed near each other."""

SELECTOR = "scheduling.koordinator.sh/network-topology-selector"
"""Annotation of a pod: it is placed near pods with the same value."""

NO_INDEX = -1
_LARGEST_INDEX = (1 << 31) - 1
_INDEX = re.compile(r"\+?[0-9]{1,10}").fullmatch


class BadNetworkTopology(KoordError):
    """A ClusterNetworkTopology whose layers form no chain from the cluster to the nodes."""


class Layer(NamedTuple):
    """A layer between the cluster and the nodes.

    Attributes:
        labels: node labels; the first one with a value names the node's domain.
    """

    name: str
    labels: tuple[str, ...]


class GatherSpec(msgspec.Struct, frozen=True):
    """The wishes of a gang.

    Attributes:
        must: layers of which one domain has to hold the gang.
        prefer: layers of which the gang should use as few domains as possible.
        multiples: layer -> the number of pods in each of its domains is a multiple of this, if above 1.
    """

    must: frozenset[str] = frozenset()
    prefer: frozenset[str] = frozenset()
    multiples: tuple[tuple[str, int], ...] = ()


class _Layer(KubeStruct, frozen=True):
    topology_layer: str
    parent_topology_layer: str = ""
    label_key: tuple[str, ...] = ()


class _Spec(KubeStruct, frozen=True):
    network_topology_spec: tuple[_Layer, ...] = ()


class _Topology(KubeStruct, frozen=True):
    spec: _Spec = _Spec()


class _Rule(KubeStruct, frozen=True):
    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int = 0


class _Gather(KubeStruct, frozen=True):
    gather_strategy: tuple[_Rule, ...] = ()


def read_layers(topology: Mapping[str, Any]) -> tuple[Layer, ...]:
    """Returns the layers between the cluster and the nodes, the outermost first.

    Raises:
        BadNetworkTopology: the object cannot be read, or a layer has no parent, or is its own ancestor.
    """
    try:
        found = msgspec.convert(topology, _Topology)
    except msgspec.ValidationError as error:
        raise BadNetworkTopology(
            f"ClusterNetworkTopology {OBJECT} cannot be read: {field_fault(error)}; correct it"
        ) from error
    by_name = {each.topology_layer: each for each in found.spec.network_topology_spec}
    if NODE_LAYER not in by_name:
        raise BadNetworkTopology(
            f"ClusterNetworkTopology {OBJECT} has no {NODE_LAYER}; add it to spec.networkTopologySpec, with the layer"
            " above the nodes as its parentTopologyLayer"
        )
    chain: list[Layer] = []
    passed = {NODE_LAYER}
    name = by_name[NODE_LAYER].parent_topology_layer or CLUSTER_LAYER
    while name != CLUSTER_LAYER:
        if name in passed or name not in by_name:
            problem = "is its own ancestor" if name in passed else "is no topologyLayer"
            raise BadNetworkTopology(
                f"ClusterNetworkTopology {OBJECT}: layer {name} {problem}; the parents have to lead from {NODE_LAYER}"
                f" to {CLUSTER_LAYER}"
            )
        passed.add(name)
        chain.append(Layer(name, by_name[name].label_key))
        name = by_name[name].parent_topology_layer or CLUSTER_LAYER
    return tuple(reversed(chain))


def topology_fault(text: str) -> str:
    """Returns why the annotation of a gang, or a rule of it, is ignored; empty where it is not."""
    if not text:
        return ""
    try:
        rules = msgspec.json.decode(text, type=_Gather).gather_strategy
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return f"it cannot be read, and the gang has no wishes: {field_fault(error)}"
    unknown = next((rule for rule in rules if rule.strategy and rule.strategy not in STRATEGIES), None)
    return f"layer {unknown.layer!r} has strategy {unknown.strategy!r}, which is ignored" if unknown else ""


@lru_cache(maxsize=4096)
def read_gather(text: str) -> GatherSpec | None:
    """Returns the wishes that a gang's annotation has; None without any, or where it cannot be read.

    A rule with another strategy counts for its multiple alone.
    """
    if not text:
        return None
    try:
        rules = msgspec.json.decode(text, type=_Gather).gather_strategy
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    if not rules:
        return None
    return GatherSpec(
        must=frozenset(rule.layer for rule in rules if rule.strategy == MUST_GATHER),
        prefer=frozenset(rule.layer for rule in rules if rule.strategy == PREFER_GATHER),
        multiples=tuple(sorted({rule.layer: k for rule in rules if (k := rule.pod_count_multiple) > 1}.items())),
    )


def index_of(annotations: Mapping[str, str] | None) -> int:
    """Returns the index of a pod in its gang, at least 0; NO_INDEX without a readable one."""
    text = (annotations or {}).get(INDEX, "")
    if not text or not _INDEX(text):
        return NO_INDEX
    index = int(text)
    return index if index <= _LARGEST_INDEX else NO_INDEX
