"""Annotations of a node that the scheduler ignores since they cannot be read."""

from collections.abc import Iterator

from services.scheduler.plugins.load_aware_scheduling.node_thresholds import ANNOTATION as THRESHOLDS
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import thresholds_fault
from services.scheduler.state.allocatable_less_node_reservation import ANNOTATION as RESERVATION
from services.scheduler.state.allocatable_less_node_reservation import reservation_fault
from shared.kube.node import Node


def ignored_annotations(node: Node) -> Iterator[str]:
    """Yields each of them, with what counts instead."""
    annotations = node.metadata.annotations or {}
    for name, fault_of in ((RESERVATION, reservation_fault), (THRESHOLDS, thresholds_fault)):
        if fault := fault_of(annotations.get(name, "")):
            yield f"annotation {name}: {fault}"
