"""A plugin's account over the nodes, kept from cycle to cycle."""

from typing import Protocol, runtime_checkable

from services.scheduler.state.pod_class import PodClass
from services.scheduler.state.pod_record import Assignment
from shared.kube.node import Node, NodeMetric
from shared.kube.node_resource_topology import NodeResourceTopology


class PluginCache(Protocol):
    """A plugin's account over the nodes: a function of the state, kept up to date by the index."""

    def set_node(self, row: int, node: Node | None) -> None:
        """The node in the row as observed, None when it is gone."""
        ...

    def set_metric(self, row: int, metric: NodeMetric | None, updated: str) -> None:
        """The newest report of the node in the row; `updated` is the last report time it or an earlier one stated."""
        ...

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """The pod counts on the node in the row from now on; it did not before."""
        ...

    def release(self, row: int, uid: str, assignment: Assignment) -> None:
        """The pod counts there no more."""
        ...


@runtime_checkable
class SelectiveCache(PluginCache, Protocol):
    """An account in which pods of most classes count for nothing."""

    def applies_to(self, pod_class: PodClass) -> bool:
        """Whether it is told of pods of the class; the same for as long as the account is kept."""
        ...


@runtime_checkable
class TopologyCache(PluginCache, Protocol):
    """An account that reads NodeResourceTopologies as well."""

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """The NodeResourceTopology of that name, which is its node's; None when it is gone. It may come before the node."""
        ...
