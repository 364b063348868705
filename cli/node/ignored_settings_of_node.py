"""Annotations and labels of a node that have no effect as they are written, for every service that reads nodes."""

from collections.abc import Iterator

from services.scheduler.explain.ignored_node_annotations import ignored_annotations
from services.slo_controller.config.ignored_node_overrides import ignored_overrides
from shared.domain.misspelt_settings import misspelt_settings
from shared.kube.node import Node


def ignored_settings_of_node(node: Node) -> Iterator[str]:
    """Yields a sentence about each, with what counts instead or what is meant."""
    yield from ignored_annotations(node)
    yield from ignored_overrides(node.metadata)
    yield from misspelt_settings(node.metadata.labels, node.metadata.annotations)
