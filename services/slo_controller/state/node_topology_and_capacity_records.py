"""Parts of nodes and of other objects as the SLO controller stores them."""

from typing import Any, NamedTuple

from shared.domain.cpu_memory import Amount
from shared.kube.meta import Metadata


class Topology(NamedTuple):
    """A node's NodeResourceTopology: annotations, labels, policies, and zones as the API has them."""

    annotations: dict[str, str]
    zones: list[dict[str, Any]]
    labels: dict[str, str] = {}  # noqa: RUF012  a default that is never changed
    policies: tuple[str, ...] = ()


class NodeResources(NamedTuple):
    """A node's capacity and the part of it that is reserved for the system.

    Attributes:
        is_reported: the status has capacity and allocatable; before that, nothing is written to the node.
    """

    metadata: Metadata
    is_reported: bool
    capacity: Amount
    reserved: Amount
