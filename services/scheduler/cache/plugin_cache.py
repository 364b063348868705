"""Base class of a plugin's data over the nodes, kept from cycle to cycle."""

from typing import Any

from services.scheduler.state.pod_equivalence_class import PodClass
from services.scheduler.state.pod_scheduling_record import Assignment
from services.scheduler.state.usage_records import MetricRecord
from shared.kube.device import Device
from shared.kube.node import Node
from shared.kube.node_resource_topology import NodeResourceTopology


class PluginCache:
    """A plugin's data over the nodes: a function of the state, kept up to date by the cycle inputs.

    The defaults keep nothing.
    """

    def applies_to(self, pod_class: PodClass) -> bool:  # noqa: ARG002
        """Returns False where pods of the class change nothing; the same for as long as the cache is kept."""
        return True

    def set_node(self, row: int, node: Node | None) -> None:
        """Sets the node in the row as observed, None when it is deleted."""

    def set_metric(self, row: int, metric_record: MetricRecord | None) -> None:
        """Sets the newest report of the node in the row; None when there is none."""

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """Sets the NodeResourceTopology of that name, which is its node's; None when it is deleted. It may come before the node."""

    def set_device(self, name: str, device: Device | None) -> None:
        """Sets the Device of that name, which is its node's; None when it is deleted. It may come before the node."""

    def view(self, row: int) -> dict[str, Any]:  # noqa: ARG002
        """The data of the node in a row as JSON, for the debug view that the plugin declares."""
        return {}

    def assign(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts a pod on the node in the row; it did not count there before."""

    def release(self, row: int, uid: str, assignment: Assignment) -> None:
        """Counts the pod no longer."""
