"""The nodes as leaves of the network's tree, in arrays, so that amounts are summed up the tree at once.

The domains of a layer are numbered in the order of a walk through the tree, children by name: those below one domain
are neighbours. A node without a domain in an outer layer is left out; one without a domain in the lowest layer is a
domain of its own there. The identity of a domain is its layer and name: where nodes disagree about the domain above,
the node with the first name decides.

Source: spec/scheduler-workloads.md 2.5; upstream pkg/scheduler/frameworkext/networktopology.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from services.scheduler.cache.nodes import NodeTable
from services.scheduler.kernels.array_types_and_row_selection import Int64
from shared.domain.network_topology import CLUSTER_LAYER, NODE_LAYER, OBJECT, BadNetworkTopology, Layer, read_layers

Path = tuple[str, ...]
"""Names of a node's domains below the cluster, the outermost first; the last one is the node's own name."""

_ABSENT = f"there is no ClusterNetworkTopology {OBJECT}"


class NetworkDomains(NamedTuple):
    """The domains of a cluster as a tree, in arrays.

    Attributes:
        layers: from CLUSTER_LAYER to NODE_LAYER.
        names: layer's number -> names of its domains, in order; the last one has the nodes.
        parents: layer's number -> [domains], the number of the domain above; empty for the first layer.
        starts: layer's number -> [domains], the number of the first domain below; empty for the last layer.
        rows: [nodes], their rows in the node table.
        ranks: layer's number -> [domains], their order by name, whatever is above them.
    """

    layers: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    parents: tuple[Int64, ...]
    starts: tuple[Int64, ...]
    rows: Int64
    ranks: tuple[Int64, ...]

    def sums(self, of_nodes: Int64, layer: int) -> Int64:
        """Returns [domains of a layer]: the sums of what the layer below has, [domains there]."""
        found: Int64 = np.add.reduceat(of_nodes, self.starts[layer]) if len(of_nodes) else of_nodes
        return found

    def count(self, layer: int) -> int:
        """Returns the number of domains of a layer."""
        return len(self.names[layer])

    def above(self, layer: int, domain: int, upto: int) -> int:
        """Returns the domain of an outer layer that contains a domain."""
        for each in range(layer, upto, -1):
            domain = int(self.parents[each][domain])
        return domain

    def nodes_in(self, layer: int, domain: int) -> range:
        """Returns the places of the nodes of a domain among `rows`."""
        return self.below(layer, domain, len(self.layers) - 1)

    def below(self, layer: int, domain: int, upto: int) -> range:
        """Returns the domains of an inner layer that a domain contains."""
        begin, end = domain, domain + 1
        for each in range(layer, upto):
            starts = self.starts[each]
            begin, end = int(starts[begin]), int(starts[end]) if end < len(starts) else self.count(each + 1)
        return range(begin, end)

    def title(self, layer: int, domain: int) -> str:
        """Returns a domain as messages name it: `layer/name`."""
        return f"{self.layers[layer]}/{self.names[layer][domain]}"


class NetworkTopology:
    """The layers as observed, and the tree that the present nodes form.

    Attributes:
        layers: None without a ClusterNetworkTopology, or with one that cannot be read.
        problem: what is wrong with it; empty where nothing is.
    """

    def __init__(self) -> None:
        self.layers: tuple[Layer, ...] | None = None
        self.problem = _ABSENT
        self._paths: dict[int, Path | None] = {}  # row -> path
        self._version = -1  # of the node table
        self._domains: NetworkDomains | None = None

    def set(self, topology: Mapping[str, Any] | None) -> None:
        """Takes the object as observed; None when it is deleted."""
        before = self.layers
        self.layers, self.problem = None, _ABSENT
        if topology is not None:
            try:
                self.layers, self.problem = read_layers(topology), ""
            except BadNetworkTopology as error:
                self.problem = str(error)
        if self.layers != before:
            self._version, self._domains = -1, None
            self._paths.clear()

    def domains(self, table: NodeTable) -> NetworkDomains | None:
        """Returns the tree of the present nodes; None without layers."""
        if self.layers is None:
            return None
        if self._version != table.version:
            changed = table.changed_since(self._version) if self._version >= 0 else None
            self._version = table.version
            if self._read(table, range(table.size) if changed is None else changed.tolist()) or self._domains is None:
                self._domains = domains_of(
                    [layer.name for layer in self.layers], {row: path for row, path in self._paths.items() if path}
                )
        return self._domains

    def _read(self, table: NodeTable, rows: Sequence[int]) -> bool:
        """Reads the paths of nodes; returns True where one has changed."""
        assert self.layers is not None, "its caller has looked"
        has_changed = False
        for row in rows:
            path = None
            if table.alive[row]:
                path = path_of(self.layers, table.labels.of(row), table.names[row])
            if self._paths.get(row) != path:
                self._paths[row], has_changed = path, True
        return has_changed


def path_of(layers: Sequence[Layer], labels: Mapping[str, str], node: str) -> Path | None:
    """Returns the domains of a node; None for a node that is left out."""
    path: list[str] = []
    for number, layer in enumerate(layers):
        name = next((labels[key] for key in layer.labels if labels.get(key)), "")
        if not name:
            if number + 1 < len(layers):
                return None
            name = node
        path.append(name)
    return (*path, node)


def domains_of(layers: Sequence[str], paths: Mapping[int, Path]) -> NetworkDomains:
    """Returns the tree of nodes by their paths: row -> path."""
    above: dict[tuple[int, str], str] = {}
    for path in sorted(paths.values(), key=lambda path: path[-1]):
        for depth in range(len(path) - 1, 0, -1):
            above.setdefault((depth, path[depth]), path[depth - 1])
    resolved = sorted((_resolved(path, above), row) for row, path in paths.items())
    depth = len(layers) + 1
    names: list[list[str]] = [[""], *([] for _ in range(depth))]
    parents: list[list[int]] = [[], *([] for _ in range(depth))]
    starts: list[list[int]] = [[0], *([] for _ in range(depth))]
    before: Path = ()
    for path, _ in resolved:
        is_other = False
        for place, name in enumerate(path):
            is_other = is_other or not before or before[place] != name
            if is_other:
                names[place + 1].append(name)
                parents[place + 1].append(len(names[place]) - 1)
                if place + 2 <= depth:
                    starts[place + 1].append(len(names[place + 2]))
        before = path
    return NetworkDomains(
        layers=(CLUSTER_LAYER, *layers, NODE_LAYER),
        names=tuple(map(tuple, names)),
        parents=tuple(np.array(each, np.int64) for each in parents),
        starts=tuple(np.array(each, np.int64) for each in starts[:-1]),
        rows=np.array([row for _, row in resolved], np.int64),
        ranks=tuple(_ranks(each) for each in names),
    )


def _ranks(names: Sequence[str]) -> Int64:
    ranks = np.empty(len(names), np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


def _resolved(path: Path, above: Mapping[tuple[int, str], str]) -> Path:
    """Returns a path with the domains above that are in force."""
    found = [path[-1]]
    for depth in range(len(path) - 1, 0, -1):
        found.append(above[depth, found[-1]])
    return tuple(reversed(found))
