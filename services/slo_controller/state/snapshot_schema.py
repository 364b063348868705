"""The stored form of the SLO controller's state."""

from typing import Any

import msgspec

from services.slo_controller.state.node_topology_and_capacity_records import Topology
from services.slo_controller.state.pods_on_nodes import StoredPods
from services.slo_controller.state.usage_report import UsageReport
from shared.domain.own_desired_states import DesiredFields
from shared.events.nodes import NodeTopologyReported
from shared.events.slo import NodeOvercommitted, NodeReportsIgnored, RecommendationUpdated
from shared.kube.node import Node, NodeMetricSpec

FIELDS = (
    "positions", "nodes", "node_metrics", "reports", "newest_report_ns", "metric_specs", "node_slos", "topologies", "devices",
    "reported_topologies", "config_data", "config_uid", "listed", "texts", "config_digest", "rejected_digest", "decided", "ignored", "frozen", "desired_fields",
    "recommendations", "recommended", "cluster_seen", "deleted_at",
)  # fmt: skip
"""Attributes of SloState that are stored as they are; its pods have a form of their own."""


class Snapshot(msgspec.Struct):
    """All stored fields of SloState."""

    positions: dict[str, int]
    nodes: dict[str, Node]
    pods: StoredPods
    node_metrics: dict[str, UsageReport]
    reports: dict[str, UsageReport]
    newest_report_ns: dict[str, int]
    metric_specs: dict[str, NodeMetricSpec]
    node_slos: dict[str, dict[str, Any]]
    topologies: dict[str, Topology]
    devices: dict[str, dict[str, Any]]
    reported_topologies: dict[str, NodeTopologyReported]
    config_data: dict[str, str] | None
    config_uid: str
    listed: bool
    texts: dict[str, str]
    config_digest: str
    rejected_digest: str
    decided: dict[str, NodeOvercommitted]
    ignored: dict[str, NodeReportsIgnored]
    frozen: bool
    desired_fields: dict[str, dict[str, DesiredFields]]
    recommendations: dict[str, dict[str, Any]]
    recommended: dict[str, RecommendationUpdated]
    cluster_seen: int
    deleted_at: dict[str, list[int]]


# JSON, since amounts in nanos exceed the 64 bits of integers in MessagePack.
ENCODER = msgspec.json.Encoder(order="sorted")
DECODER = msgspec.json.Decoder(Snapshot)
