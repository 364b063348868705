"""Annotations and labels of a node that the scheduler ignores since they cannot be read."""

from collections.abc import Iterator

from services.scheduler.plugins.load_aware_scheduling.node_thresholds import ANNOTATION as THRESHOLDS
from services.scheduler.plugins.load_aware_scheduling.node_thresholds import thresholds_fault
from services.scheduler.plugins.node_numa_resource.amplification_ratio_annotation import BadRatios, read_ratios
from services.scheduler.plugins.node_numa_resource.node_cpu_and_zone_options import ignored_labels
from services.scheduler.state.allocatable_less_node_reservation import ANNOTATION as RESERVATION
from services.scheduler.state.allocatable_less_node_reservation import reservation_fault
from shared.kube.node import Node


def ignored_annotations(node: Node) -> Iterator[str]:
    """Yields each of them, with what counts instead."""
    annotations = node.metadata.annotations or {}
    for name, fault_of in ((RESERVATION, reservation_fault), (THRESHOLDS, thresholds_fault)):
        if fault := fault_of(annotations.get(name, "")):
            yield f"annotation {name}: {fault}"
    try:
        read_ratios(annotations)
    except BadRatios as error:
        yield str(error)
    yield from ignored_labels(node.metadata.labels or {})
